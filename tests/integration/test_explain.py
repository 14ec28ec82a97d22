"""`pytube explain`: where a key is, and why the sink holds something else than the source."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from pytube.config import Config, parse
from pytube.errors import SinkUnavailable, UsageError
from pytube.sinks import build_sink
from pytube.sinks.postgres import PostgresSink
from pytube.testing import batch
from pytube.verify import Explanation, explain
from tests.helpers.capture import open_session
from tests.helpers.cli import run, run_json
from tests.helpers.database import preparing
from tests.helpers.terms import Claim, Conn, Term, acquire, park, park_item, release
from tests.integration.test_verify import CONFIG


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("SELECT tube_ensure_exists('t', 2)")
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, n int, name text)")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 1)")


prepare = preparing(prepared, "config")


@pytest.fixture
def config(conn: Conn, dsn: str) -> Config:
    """A tube of one row, 42, which waits in it."""
    conn.execute("INSERT INTO public.goods VALUES (42, 1, 'Ada')")
    return parse(CONFIG.format(dsn=dsn), environment={})


def write(config: Config, body: Any, token: tuple[int, int]) -> None:
    async def send() -> None:
        settings = config.tube("t").sink
        sink = build_sink(settings.type, settings.options)
        await sink.open()
        await sink.send(batch({(1, 42): body}, token=token, seq=5, tube="t"))
        await sink.close()

    asyncio.run(send())


def ask(config: Config, key: str = "42", **options: Any) -> Explanation:
    return asyncio.run(explain(config, "t", key, **options))


def lead(conn: Conn) -> Term:
    return acquire(conn, Claim(tube="t", partitions=2, partition=1))


def test_it_waits_and_nobody_leads(config: Config) -> None:
    found = ask(config)
    assert (found.shard, found.partition, len(found.pods), found.leader) == (1, 1, 1, None)
    assert (found.source.document, found.sink.exists) == ({"id": 42, "n": 1, "name": "Ada"}, False)
    assert found.sentences[1:] == [
        "No worker leads partition 1: start one (`pytube worker`).",
        "The sink holds no document.",
        "The source has a document for it.",
        "The document is missing at the sink, because the change was not delivered yet.",
    ]


def test_what_was_not_looked_at_is_told(conn: Conn, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """More pods wait than are looked at: whether the key is in those behind is not known."""
    monkeypatch.setattr(sys.modules[explain.__module__], "_MOST", 2)
    conn.execute(
        "INSERT INTO tube.t (op, shard, ids) SELECT 'U', 1, ARRAY[g] FROM generate_series(100, 110) AS g"
    )
    conn.execute("INSERT INTO public.goods VALUES (110, 1, 'Eve')")
    found = ask(config, "110")
    assert not found.all_pods_seen
    assert not found.is_settled
    assert found.sentences[:2] == [
        (
            "Only the first 2 pods of partition 1 were looked at: "
            "`pytube pods list t --shard 1 --key 110` reads all."
        ),
        "No touch of it waits in those pods of partition 1.",
    ]
    assert "whether the change is on its way is not known" in found.sentences[-1]


def test_it_is_in_flight(conn: Conn, config: Config) -> None:
    term = lead(conn)
    conn.execute("SELECT * FROM tube_pods_mark(%s, %s, %s, %s)", term.args)
    found = ask(config)
    assert found.pods[0].marked_by == term.leader_id
    assert "is in flight: the worker" in found.sentences[1]
    release(conn, term)
    assert "was taken by a term that is over" in ask(config).sentences[1]


def test_it_is_delivered_and_by_whom(conn: Conn, config: Config) -> None:
    term = lead(conn)
    write(config, {"name": "Ada", "n": 1, "id": 42}, (term.epoch, 7))
    conn.execute("DELETE FROM t")
    found = ask(config)
    assert found.is_settled
    assert (found.epoch, found.counter, found.seq) == (term.epoch, 7, 5)
    assert found.writer is not None
    assert found.sentences[-1] == "The sink holds what the source would send now."
    assert f"(epoch {term.epoch}, counter 7, stamped with seq 5): by the worker" in found.sentences[2]


def test_it_differs_and_nothing_is_on_its_way(conn: Conn, config: Config) -> None:
    write(config, {"name": "Ada", "n": True, "id": 42}, (lead(conn).epoch, 7))
    conn.execute("DELETE FROM t")
    found = ask(config)
    assert (found.difference, found.fields, found.is_settled) == ("different", ["n"], False)
    assert "The two differ, in n, and nothing is on its way: touch the key" in found.sentences[-1]


@pytest.fixture
def companion(conn: Conn, config: Config) -> str:
    """Of the tube, in which nothing waits; the sink holds an old document."""
    conn.execute("SELECT tube_companion_ensure('t', 't_relations', 'text')")
    write(config, {"name": "Ada", "n": 0, "id": 42}, (lead(conn).epoch, 7))
    conn.execute("DELETE FROM t")
    return "t_relations"


def test_what_waits_in_a_companion_may_lead_to_it(conn: Conn, config: Config, companion: str) -> None:
    assert ask(config).sentences[-1].startswith("The two differ, in n, and nothing is on its way")
    conn.execute("SELECT t_relations_touch(3, '{a,b}', 'U'), t_relations_touch(4, '{c}', 'B')")
    found = ask(config)
    assert [(one.companion, one.pods, one.links, one.parked) for one in found.relations] == [
        (companion, 2, 3, 0)
    ]
    assert found.sentences[0] == "No touch of it waits in the tube."
    assert found.sentences[1].startswith("In t_relations, 3 changed links of relations are waiting, for ")
    assert found.sentences[-1] == (
        "The two differ, in n; the change may be on its way, queued or parked in t_relations."
    )
    write(config, {"name": "Ada", "n": 1, "id": 42}, (found.epoch or 0, 8))
    found = ask(config)
    assert not found.is_settled
    assert found.sentences[-1] == (
        "The sink holds what the source would send now. The queued pods bring nothing new."
    )


def test_what_is_parked_in_a_companion_may_lead_to_it(conn: Conn, config: Config, companion: str) -> None:
    park(conn, acquire(conn, Claim(tube=companion)), park_item(7, shard=3))
    found = ask(config)
    assert [(one.companion, one.pods, one.waits, one.parked) for one in found.relations] == [
        (companion, 0, None, 1)
    ]
    assert found.sentences[1] == (
        "In t_relations, 1 changed link of relations is parked, and may lead to this key "
        "(`pytube park list t_relations`)."
    )
    assert "the change may be on its way" in found.sentences[-1]


@pytest.mark.usefixtures("companion")
def test_no_more_of_a_companion_is_counted_than_it_has_to(
    conn: Conn, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[explain.__module__], "MOST_RELATIONS", 2)
    monkeypatch.setattr(sys.modules[Explanation.__module__], "MOST_RELATIONS", 2)
    for shard in range(3):
        conn.execute("SELECT t_relations_touch(%s, '{a,b}', 'U')", [shard])
    assert ask(config).sentences[1].startswith("In t_relations, at least 4 changed links of relations")


def test_it_is_parked(conn: Conn, config: Config) -> None:
    park(conn, lead(conn), park_item(42, shard=1))
    conn.execute("DELETE FROM t")
    found = ask(config)
    assert found.parked is not None
    assert (found.parked.error, found.parked.attempts) == ("too bad", 3)
    assert "because the key is parked" in found.sentences[-1]
    commands = [f"`pytube park {what} t --shard 1 --key 42`" for what in ("retry", "discard")]
    assert all(command in found.sentences[-1] for command in commands)
    write(config, {"id": 42, "n": 1, "name": "Ada"}, (1, 1))
    found = ask(config)
    assert found.difference is None
    assert all(command in found.sentences[-1] for command in commands)
    found.host = "one"
    assert "`pytube --host one park discard t --shard 1 --key 42`" in found.sentences[-1]


def test_it_has_failed_and_its_partition_is_paused(conn: Conn, config: Config) -> None:
    term = lead(conn)
    item = {"shard": 1, "id": "42", "error": "too many cooks", "attempts": 2, "delay": 3600}
    conn.execute("SELECT tube_pods_fail(%s, %s, %s, %s, %s)", (*term.args, json.dumps([item])))
    conn.execute("SELECT tube_pause('t', 1, '1 hour', 'while the cooks are counted')")
    found = ask(config)
    assert found.failure is not None
    assert found.pause is not None
    (paused,) = [sentence for sentence in found.sentences if "is paused until" in sentence]
    assert "while the cooks are counted (`pytube resume t`)" in paused
    assert any("has failed 2 times" in said and "too many cooks" in said for said in found.sentences)
    assert found.sentences[-1].endswith("was not delivered yet and its partition is paused.")


@pytest.mark.parametrize("depth", [253, 900])
def test_a_document_that_is_nested_deeply_is_shown_as_text(config: Config, depth: int) -> None:
    body = b'{"a":' * depth + b"1" + b"}" * depth
    write(config, body, (1, 1))
    found = ask(config)
    assert found.difference == "different"
    assert isinstance(found.sink.document, str)
    assert json.loads(orjson.dumps(found.as_json(), default=str))["sink"]["document"] == found.sink.document


def test_the_sink_is_ahead(config: Config) -> None:
    write(config, {"id": 42}, (2**31 - 2, 1))
    found = ask(config)
    assert found.is_ahead
    assert any("pytube tube rebase t --epoch 2147483646" in sentence for sentence in found.sentences)


def test_the_row_is_gone(conn: Conn, config: Config) -> None:
    write(config, {"id": 42}, (1, 1))
    conn.execute("DELETE FROM public.goods")
    found = ask(config)
    assert (found.difference, len(found.pods)) == ("extra", 2)
    assert found.sentences[-1].startswith("The sink still holds a document")


def test_a_sink_that_is_down_and_a_table_that_can_not_be_read(
    conn: Conn, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(_: Any) -> None:
        raise SinkUnavailable("it is down")

    monkeypatch.setattr(PostgresSink, "open_existing", down)
    conn.execute("ALTER TABLE public.goods RENAME COLUMN id TO number")
    found = ask(config)
    assert found.sink.unknown == "it is down"
    assert "number" in (found.source.unknown or "") or "column" in (found.source.unknown or "")
    assert found.sentences[-1] == "So the two can't be compared."
    assert not found.is_settled


def test_which_table(conn: Conn, config: Config) -> None:
    conn.execute("CREATE TABLE public.more (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.more', 10, 4)")
    assert ask(config).shard == 1
    assert ask(config, table="public.more").shard == 12
    assert ask(config, shard=1).source.exists
    assert ask(config, shard=77).source.unknown == "no attached table has shard 77"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": "x"}, "is not a valid id of this tube, whose keys are bigint"),
        ({"key": str(2**63)}, "is not a valid id of this tube"),
        ({"key": "1", "shard": -1}, "is not a valid shard"),
        ({"key": "1", "shard": 1, "table": "public.goods"}, "not both"),
        ({"key": "1", "table": "public.none"}, "not a root table"),
    ],
)
def test_bad_input(config: Config, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ask(config, **options)


@pytest.mark.usefixtures("config")
def test_the_command(tmp_path: Path, dsn: str) -> None:
    (tmp_path / "pytube.toml").write_text(CONFIG.format(dsn=dsn))
    shown = run("explain", "--tube", "t", "--key", "42", folder=tmp_path).stdout.splitlines()
    assert shown[0] == "key 42 of shard 1, tube t, partition 1"
    assert json.loads(shown[-1].removeprefix("source: "))["name"] == "Ada"
    assert run_json("explain", "--tube", "t", "--key", "42", folder=tmp_path)["difference"] == "missing"
    run("wait", "--tube", "t", "--timeout", "0", folder=tmp_path, code=1)
    run("wait", "--tube", "none", folder=tmp_path, code=2)
    run("wait", "--tube", "t", "--now", "--seq", "1", folder=tmp_path, code=2)


def test_of_several_root_tables_the_one_that_has_the_key_is_explained(conn: Conn, config: Config) -> None:
    conn.execute("CREATE TABLE public.more (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.more', 2)")
    conn.execute("INSERT INTO public.more VALUES (7), (42)")
    found = ask(config, "7")
    assert (found.shard, found.table) == (2, "public.more")
    with pytest.raises(UsageError, match=r"2 root tables of tube 't' have the key 42: give --table \(public"):
        ask(config)
    assert ask(config, table="public.more").shard == 2
    conn.execute("DELETE FROM public.more; DELETE FROM public.goods")
    with pytest.raises(UsageError, match=r"no root table .* nor the sink .* for the key 42: give --table"):
        ask(config)
    write(config, {"id": 42}, (1, 1))
    found = ask(config)
    assert (found.shard, found.table) == (1, "public.goods")


@pytest.mark.usefixtures("config")
def test_of_several_root_tables_a_row_that_no_document_can_be_made_of_is_found(conn: Conn, dsn: str) -> None:
    conn.execute("CREATE TABLE public.more (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.more', 2)")
    conn.execute("UPDATE public.goods SET n = 0")
    text = (
        CONFIG.format(dsn=dsn)
        + """
        [tube.t.enrich."public.goods"]
        mode = "query"
        query = "SELECT id, to_json(1 / n) FROM public.goods WHERE id = ANY(%(ids)s)"
    """
    )
    found = ask(parse(text, environment={}))
    assert (found.shard, found.table) == (1, "public.goods")
    assert any("division by zero" in sentence for sentence in found.sentences), found.sentences
