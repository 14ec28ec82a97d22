"""Messages stashed by applications: through psycopg, and through a writer with its backends."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from psycopg.rows import dict_row

from pytube.errors import BrokerUnavailable, UnknownTube, UsageError
from pytube.outbox import Message, Outbox, stash, stash_async
from pytube.outbox.partitions import kafka_partition
from tests.helpers.outbox_sql import OUTBOX, make_outbox
from tests.helpers.terms import Conn, scalar

MESSAGES = [
    Message("t", "k", "text ä", {"a": "1", "b": "2"}),
    Message("t", None, b"\x00\xff"),
    Message("t", "k", None, [("a", "1"), ("a", None)], partition_key="p"),
]
ROWS = [
    ("t", "k", "text ä".encode(), ["a", "b"], ["1", "2"], None),
    ("t", None, b"\x00\xff", [], [], None),
    ("t", "k", None, ["a", "a"], ["1", None], "p"),
]


def rows(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values, partition_key"
        " FROM orders ORDER BY id"
    ).fetchall()


def test_messages_are_part_of_the_callers_transaction(conn: Conn, dsn: str) -> None:
    make_outbox(conn, value_type="bytea")
    # with a row factory of the application's, and no autocommit
    with psycopg.connect(dsn, row_factory=dict_row) as app:
        ids = stash(app, MESSAGES, outbox=OUTBOX)
        assert ids == sorted(ids)
        assert len(ids) == 3
        assert rows(conn) == []
        app.rollback()
        assert stash(app, [], outbox=OUTBOX) == []
        stash(app, MESSAGES, outbox=OUTBOX, in_order=True)
        app.commit()
    assert rows(conn) == ROWS


def test_a_message_by_itself_is_stashed_as_among_others(conn: Conn) -> None:
    make_outbox(conn, value_type="bytea")
    kinds = [
        *MESSAGES,
        Message("t", "k", "v", [("a", None)], partition_key="p"),
        Message("t", "k", "v", {"long name": "1", "b": "2"}),
        Message("t", None, None),
    ]
    for message in kinds:
        stash(conn, [message], outbox=OUTBOX, in_order=message.key == "k")
    alone = rows(conn)
    conn.execute("DELETE FROM orders")
    stash(conn, kinds, outbox=OUTBOX)
    assert alone == rows(conn)


async def test_messages_are_stashed_over_a_connection_that_is_awaited(conn: Conn, dsn: str) -> None:
    make_outbox(conn, value_type="bytea")
    async with await psycopg.AsyncConnection.connect(dsn) as app:
        ids = await stash_async(app, MESSAGES, outbox=OUTBOX)
        assert await stash_async(app, [], outbox=OUTBOX) == []
    assert len(ids) == 3
    assert rows(conn) == ROWS


def test_thousands_are_one_statement(conn: Conn) -> None:
    make_outbox(conn)
    conn.execute("CREATE TABLE public.statements (n int)")
    conn.execute(
        "CREATE FUNCTION public.count_statements() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO public.statements VALUES (1); RETURN NULL; END $$;"
        " CREATE TRIGGER counted AFTER INSERT ON orders EXECUTE FUNCTION public.count_statements()"
    )
    messages = [Message("t", str(number), "v", {"n": str(number)}) for number in range(5000)]
    ids = stash(conn, messages, outbox=OUTBOX)
    assert scalar(conn, "SELECT count(*) FROM statements") == 1
    found = conn.execute("SELECT id, kafka_key, kafka_header_values FROM orders ORDER BY id").fetchall()
    assert found == [(id_, str(number), [str(number)]) for number, id_ in enumerate(ids)]


def test_what_is_wrong_with_a_message_is_said(conn: Conn) -> None:
    make_outbox(conn)
    with pytest.raises(UsageError, match="message 1 for 't' has a value of the type dict: encode it"):
        stash(conn, [MESSAGES[0], Message("t", "k", {})], outbox=OUTBOX)  # type: ignore[arg-type]
    with pytest.raises(UnknownTube, match="there is no outbox 'none'"):
        stash(conn, MESSAGES, outbox="none")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="'a b' is not a valid topic name"):
        stash(conn, [Message("a b", "k", "v")], outbox=OUTBOX)
    with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
        stash(conn, [Message("t", "k", b"\xff")], outbox=OUTBOX)  # it has values of the type text
    assert rows(conn) == []


def test_a_writer_stashes_unless_it_is_told_otherwise(conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    make_outbox(conn, value_type="bytea")
    monkeypatch.delenv("PYTUBE_OUTBOX_BACKEND", raising=False)
    writer = Outbox(OUTBOX)
    with conn.transaction(force_rollback=True):
        writer.publish(MESSAGES, conn)
        assert rows(conn) == ROWS
    writer.publish(MESSAGES[0], conn)
    assert rows(conn) == ROWS[:1]
    with pytest.raises(UsageError, match="need the connection"):
        writer.publish(MESSAGES)
    with pytest.raises(UsageError, match="keeps no messages"):
        _ = writer.messages


async def test_a_writer_of_tests_keeps_what_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTUBE_OUTBOX_BACKEND", "memory")
    writer = Outbox(OUTBOX)
    writer.publish(MESSAGES)
    await writer.publish_async(MESSAGES[0])
    assert writer.messages == [*MESSAGES, MESSAGES[0]]
    writer.messages.clear()
    assert writer.messages == []


def test_a_writer_may_send_to_kafka_at_once(kafka_mock: str) -> None:
    topic = f"direct-{uuid.uuid4()}"
    writer = Outbox(OUTBOX, "direct", kafka={"bootstrap.servers": kafka_mock, "log_level": 0})
    writer.publish([Message(topic, "k", "1", {"h": "x"}), Message(topic, "k", None)])
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_mock,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    width = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    writer.publish(Message(topic, "other", "2", partition_key="k"))
    consumer.assign([TopicPartition(topic, kafka_partition("k", width), 0)])
    try:
        found = [consumer.poll(10) for _ in range(3)]
    finally:
        consumer.close()
    assert [(one.key(), one.value(), one.headers()) for one in found if one is not None] == [
        (b"k", b"1", [("h", b"x")]),
        (b"k", None, None),
        (b"other", b"2", None),
    ]


def test_a_broker_that_takes_nothing_is_an_error_of_the_writer() -> None:
    writer = Outbox(
        OUTBOX,
        "direct",
        kafka={"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 100, "log_level": 0},
    )
    with pytest.raises(BrokerUnavailable, match="1 of 1 messages of outbox 'orders' were not confirmed"):
        writer.publish(Message("t", "k", "v"))


def test_a_backend_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="there is no backend 'kafka_async': give db, direct or memory"):
        Outbox(OUTBOX, "kafka_async")
    monkeypatch.setenv("PYTUBE_OUTBOX_BACKEND", "direct")
    with pytest.raises(UsageError, match=r'needs a broker: kafka=\{"bootstrap.servers"'):
        Outbox(OUTBOX)
