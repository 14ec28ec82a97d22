"""What could keep a partition of an outbox from going on, with a real broker: poison, locks, faults."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import Result
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from pytube.db.database import Database
from pytube.embedded.kafka_real import RealKafka
from pytube.events import LeaderRevoked, RecordParked, TermsFail, TopicDown, TopicParked
from pytube.health.troubles import lines as troubles
from pytube.health.watcher import FleetWatcher
from pytube.outbox.inflight import InFlight
from tests.helpers.cli import run, start
from tests.helpers.outbox import (
    OUTBOX,
    check_complete,
    configured,
    create_topic,
    read,
    running,
    stash,
    topics,
    until_waiting,
    waiting,
)
from tests.helpers.waiting import wait_until, wait_until_async

Conn = psycopg.Connection[Any]
Connect = Callable[[], Conn]
MODES = {"windowed": "window = 100", "strict": 'mode = "strict"', "transactions": "transactions = true"}
NO_AUTO_CREATE = (
    f"[outbox.{OUTBOX}.kafka_options]\n"
    '"allow.auto.create.topics" = false\n"topic.metadata.propagation.max.ms" = 200'
)
ALL_MODES = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def topic(kafka_real: RealKafka) -> str:
    topic = next(topics)
    create_topic(kafka_real.bootstrap, topic)
    return topic


@pytest.fixture(autouse=True)
def _outbox(conn: Conn) -> None:
    conn.execute("SELECT outbox_ensure_exists(%s)", (OUTBOX,))


async def invoke(path: str, *arguments: str, code: int = 0) -> Result:
    """Run a command with this configuration, beside the workers."""
    return await asyncio.to_thread(partial(run, "--config", path, *arguments, code=code))


async def apart(path: str, *arguments: str, code: int = 0) -> str:
    """As `invoke`, in a process of its own: what it prints has nothing of what workers log here."""
    process = start(*arguments, config=Path(path))
    shown = "".join(await asyncio.to_thread(process.communicate))
    assert process.returncode == code, shown
    assert "Traceback" not in shown
    return shown


def parked(conn: Conn) -> dict[int, str]:
    return dict(conn.execute("SELECT id, error FROM outbox_parked(%s, 10000)", (OUTBOX,)).fetchall())


def insert(conn: Conn, topic: str, **columns: str) -> int:
    """Insert a record by SQL expressions, as an application might; its id."""
    given = {"kafka_topic": f"'{topic}'"} | columns
    statement = (
        f"INSERT INTO tube.{OUTBOX} ({', '.join(given)}) VALUES ({', '.join(given.values())}) RETURNING id"
    )
    (number,) = conn.execute(statement.encode()).fetchone() or (0,)
    return int(number)


# --- what a record may hold ---------------------------------------------------------------------

HEADERS = {
    "two dimensions": ("'{{a,b},{c,d}}'::text[]", "'{{1,2},{3,4}}'::text[]", "more than one dimension"),
    "values of two dimensions": ("'{a}'", "'{{1}}'", "more than one dimension"),
    "a NULL name": ("'{a,NULL}'", "'{1,2}'", "header 2 of 2 is NULL"),
    "more names": ("'{a,b}'", "'{1}'", "2 names and 1 value"),
    "more values": ("'{}'", "'{1}'", "0 names and 1 value"),
}


@ALL_MODES
async def test_headers_that_no_message_can_have_are_parked_with_their_reason(
    mode: str, tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    expected = {
        insert(conn, topic, kafka_key="'k'", kafka_header_keys=names, kafka_header_values=values): reason
        for names, values, reason in HEADERS.values()
    }
    stashed = stash(conn, topic, ["k", "other"])
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, MODES[mode])) as events:
        await until_waiting(conn, sorted(expected))
        await wait_until_async(lambda: len(parked(conn)) == len(expected), what="they are parked")
    found = parked(conn)
    assert found.keys() == expected.keys()
    for number, reason in expected.items():
        assert reason in found[number]
    assert [type(event) for event in events].count(LeaderRevoked) == 1, "the one term went on until the end"
    seen = read(kafka_real.bootstrap, topic, committed=mode == "transactions")
    assert sorted(one.id for one in seen) == sorted(stashed["k"] + stashed["other"])


@ALL_MODES
async def test_many_bad_records_hold_up_no_good_ones(
    mode: str, tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    """They are found and set aside many at once: one by one, each would cost a round of its own."""
    conn.execute(
        f"INSERT INTO tube.{OUTBOX} (kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
        " kafka_header_values) SELECT %s, 'bad' || n, 'v', '{{a},{b}}', '{{1},{2}}'"
        " FROM generate_series(1, 2000) AS n",
        (topic,),
    )
    stashed = stash(conn, topic, [f"good{number}" for number in range(100)])
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, MODES[mode])) as events:
        await wait_until_async(
            lambda: (
                conn.execute("SELECT count(*) FROM outbox_parked(%s, 10000)", (OUTBOX,)).fetchone() == (2000,)
            ),
            what="all bad ones are parked",
        )
        await wait_until_async(lambda: len(waiting(conn)) == 2000, what="all good ones are sent")
    told = [event for event in events if isinstance(event, RecordParked)]
    assert sum(event.records for event in told) == 2000
    assert len(told) <= 20
    check_complete(read(kafka_real.bootstrap, topic, committed=mode == "transactions"), stashed)


async def test_odd_records_are_delivered_as_they_are(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    odd = [
        insert(
            conn,
            topic,
            kafka_key="'bounds'",
            kafka_header_keys="'[0:1]={a,b}'",
            kafka_header_values="'[5:6]={1,2}'",
        ),
        insert(
            conn, topic, kafka_key="'empty name'", kafka_header_keys="'{\"\"}'", kafka_header_values="'{v}'"
        ),
        insert(
            conn,
            topic,
            kafka_key="'ours'",
            kafka_header_keys="'{pytube-outbox-id}'",
            kafka_header_values="'{x}'",
        ),
        insert(conn, topic, kafka_key="'never'", create_time="'infinity'"),
        insert(conn, topic, kafka_key="'ever'", create_time="'-infinity'"),
        insert(conn, topic, kafka_key="'late'", create_time="'294276-12-31 23:59:59+00'"),
        insert(conn, topic, kafka_key="''", partition_key="''", kafka_value="''"),
        insert(conn, topic, kafka_key="repeat('long ', 20000)", kafka_value="NULL"),
    ]
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap)):
        await until_waiting(conn)
    seen = {one.id: one for one in read(kafka_real.bootstrap, topic)}
    assert sorted(seen) == sorted(odd)
    headers = [seen[number].headers for number in odd]
    assert (headers[0]["a"], headers[0]["b"], headers[1][""]) == ("1", "2", "v")
    assert ["pytube-enqueued" in one for one in headers[2:6]] == [True, False, False, True]
    identity = conn.execute("SELECT outbox_identity(%s)", (OUTBOX,)).fetchone()
    assert {one["pytube-outbox"] for one in headers} == set(identity or ())


@ALL_MODES
async def test_what_is_for_no_topic_is_parked(
    mode: str, tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    """The brokers' own topics take records of nobody."""
    names = ["__consumer_offsets", "__transaction_state", "", "..", "a b", "ä"]
    odd = [insert(conn, name, kafka_key="'k'") for name in names]
    stashed = stash(conn, topic, ["k"])
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, MODES[mode])):
        await until_waiting(conn, odd)
        await wait_until_async(
            lambda: parked(conn).keys() == set(odd), what=lambda: f"parked: {parked(conn)}"
        )
    assert all(name in parked(conn)[number] for name, number in zip(names, odd, strict=True))
    assert [one.id for one in read(kafka_real.bootstrap, topic, committed=mode == "transactions")] == stashed[
        "k"
    ]


@pytest.mark.parametrize("kind", ["bigint", "integer"])
async def test_ids_of_an_adopted_table_may_be_0_or_less(
    kind: str, tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    adopt(conn, kind)
    least = -(2**31) if kind == "integer" else -(2**63) + 1
    ids = [least, -5, -1, 0, 1, 2**31 - 1 if kind == "integer" else 2**63 - 1]
    for number in ids:
        conn.execute(
            "INSERT INTO public.outbox VALUES (%s, now(), %s, 'k', 'v', '{}', '{}')", (number, topic)
        )
    left = "SELECT count(*) FROM public.outbox"
    async with running(configured(tmp_path, dsn, kafka_real.bootstrap, MODES["transactions"])):
        await wait_until_async(lambda: conn.execute(left).fetchone() == (0,), what="the table is empty")
    seen = read(kafka_real.bootstrap, topic, committed=True)
    assert [one.id for one in seen] == ids, "in order, each of them once"


def adopt(conn: Conn, kind: str = "bigint") -> None:
    conn.execute("SELECT outbox_drop(%s)", (OUTBOX,))
    conn.execute(
        f"CREATE TABLE public.outbox (id {kind} PRIMARY KEY, create_time timestamptz NOT NULL,"
        " kafka_topic text NOT NULL, kafka_key text, kafka_value text, kafka_header_keys text[],"
        " kafka_header_values text[], leader_id uuid)"
    )
    conn.execute("SELECT outbox_adopt(%s, 'public.outbox')", (OUTBOX,))


# --- records that somebody has locked -----------------------------------------------------------


@ALL_MODES
@pytest.mark.parametrize("table", ["own", "adopted"])
async def test_a_locked_record_waits_with_its_key_and_the_others_do_not(
    mode: str,
    table: str,
    tmp_path: Path,
    dsn: str,
    conn: Conn,
    connect: Connect,
    kafka_real: RealKafka,
    topic: str,
) -> None:
    if table == "adopted":
        adopt(conn)
    name = "public.outbox" if table == "adopted" else f"tube.{OUTBOX}"

    def write(key: str | None) -> int:
        values = (
            "'{}', '{}'"
            if table == "own"
            else "(SELECT coalesce(max(id), 0) + 1 FROM public.outbox), '{}', '{}'"
        )
        columns = (
            "kafka_header_keys, kafka_header_values"
            if table == "own"
            else "id, kafka_header_keys, kafka_header_values"
        )
        statement = (
            f"INSERT INTO {name} (create_time, kafka_topic, kafka_key, kafka_value, {columns})"
            f" SELECT now(), %s, %s, 'v', {values} RETURNING id"
        )
        (number,) = conn.execute(statement.encode(), (topic, key)).fetchone() or (0,)
        return int(number)

    def left() -> list[int]:
        return [number for (number,) in conn.execute(f"SELECT id FROM {name} ORDER BY id".encode())]

    first, locked, later = write("a"), write("a"), write("a")
    others = [write("b"), write(None)]
    with connect() as holder:
        holder.execute(f"BEGIN; SELECT FROM {name} WHERE id = {locked} FOR UPDATE".encode())
        async with running(configured(tmp_path, dsn, kafka_real.bootstrap, MODES[mode])) as events:
            await wait_until_async(lambda: left() == [locked, later], what=lambda: f"left are {left()}")
            more = [write("c"), write("a")]
            await wait_until_async(
                lambda: left() == [locked, later, more[1]], what=lambda: f"left are {left()}"
            )
            holder.execute("COMMIT")
            await wait_until_async(lambda: left() == [], what=lambda: f"left are {left()}")
    assert not any(isinstance(event, TermsFail) for event in events)
    assert [type(event) for event in events].count(LeaderRevoked) == 1, "the term went on"
    seen = read(kafka_real.bootstrap, topic, committed=mode == "transactions")
    assert [one.id for one in seen if one.key == "a"] == [first, locked, later, more[1]], "in order, and once"
    assert {one.id for one in seen} == {first, locked, later, *others, *more}


@ALL_MODES
async def test_a_record_that_is_locked_after_it_was_sent_is_purged_later(
    mode: str, tmp_path: Path, dsn: str, conn: Conn, connect: Connect, kafka_real: RealKafka
) -> None:
    """It is marked while its topic is not there yet, and then locked."""
    missing, there = next(topics), next(topics)
    create_topic(kafka_real.bootstrap, there)
    held = stash(conn, missing, ["a", "b"])
    options = f"topic_cooldown_limit = 0.5\n{MODES[mode]}\n" + NO_AUTO_CREATE
    with connect() as holder:
        async with running(configured(tmp_path, dsn, kafka_real.bootstrap, options)) as events:
            await wait_until_async(lambda: any(isinstance(event, TopicDown) for event in events))
            holder.execute(f"BEGIN; SELECT FROM tube.{OUTBOX} WHERE id = {held['a'][0]} FOR UPDATE".encode())
            create_topic(kafka_real.bootstrap, missing)
            await until_waiting(conn, held["a"])
            stash(conn, there, ["x"] * 300)
            await until_waiting(conn, held["a"])
            holder.execute("COMMIT")
            await until_waiting(conn)
    seen = read(kafka_real.bootstrap, missing, committed=mode == "transactions")
    assert sorted(one.id for one in seen) == sorted(held["a"] + held["b"]), "each of them once"


async def test_a_table_that_somebody_has_locked_ends_no_term(
    tmp_path: Path, dsn: str, conn: Conn, connect: Connect, kafka_real: RealKafka, topic: str
) -> None:
    poison = insert(conn, topic, kafka_value="repeat('x', 5000)")
    options = f'[outbox.{OUTBOX}.kafka_options]\n"message.max.bytes" = 2000'
    with connect() as holder:
        holder.execute(f"BEGIN; LOCK TABLE tube.{OUTBOX} IN EXCLUSIVE MODE".encode())
        async with running(configured(tmp_path, dsn, kafka_real.bootstrap, options)) as events:
            await wait_until_async(
                lambda: len(conn.execute("SELECT tube FROM tube_leaders()").fetchall()) == 1
            )
            holder.execute("COMMIT")
            await wait_until_async(lambda: poison in parked(conn), what="it is parked")
            stashed = stash(conn, topic, ["k"])
            await until_waiting(conn, [poison])
    assert not any(isinstance(event, TermsFail) for event in events)
    assert [one.id for one in read(kafka_real.bootstrap, topic)] == stashed["k"]


# --- topics that rest ---------------------------------------------------------------------------


@ALL_MODES
async def test_the_records_of_a_topic_that_rests_are_parked_and_discarded_by_command(
    mode: str, tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    missing = next(topics)
    config = configured(
        tmp_path, dsn, kafka_real.bootstrap, f"topic_cooldown_limit = 0.5\n{MODES[mode]}\n{NO_AUTO_CREATE}"
    )
    path = str(next(iter(tmp_path.glob("*.toml"))))  # noqa: ASYNC240 # nothing runs yet

    async def outbox(*arguments: str, code: int = 0) -> Result:
        return await invoke(path, "outbox", *arguments, code=code)

    async with running(config) as events:
        stashed = stash(conn, topic, ["k", "l"])
        waits = stash(conn, missing, ["k", "k", None])
        ids = sorted(waits["k"] + waits[None])
        await wait_until_async(lambda: any(isinstance(event, TopicDown) for event in events))
        await wait_until_async(
            lambda: conn.execute("SELECT records FROM outbox_resting()").fetchone() == (3,), what="it is told"
        )
        (shown,) = json.loads((await outbox("status", OUTBOX, "--json")).stdout)
        (rest,) = shown["resting"]
        assert (rest["topic"], rest["park"]) == (missing, False)
        assert rest["reason"]
        assert f"topic {missing} has taken nothing for" in (await outbox("status", OUTBOX)).output
        metrics = (await invoke(path, "status", "--prometheus")).stdout
        assert f'pytube_fleet_outbox_topics_resting{{partition="0",tube="{OUTBOX}"}} 1.0' in metrics
        findings = (await invoke(path, "doctor", code=1)).output
        assert f"topic {missing} has taken nothing for" in findings
        assert f"pytube outbox park {OUTBOX} --topic {missing}" in findings
        refused = await outbox("park", OUTBOX, "--topic", topic, "--yes", code=2)
        assert "does not rest" in refused.output
        shown_of_park = (await outbox("park", OUTBOX, "--topic", missing, "--yes")).stdout
        assert f"for topic {missing} that are parked: 3; see" in shown_of_park
        assert sorted(parked(conn)) == ids
        assert all("parked by an operator while" in error for error in parked(conn).values())
        await outbox("parked", "retry", OUTBOX, str(waits["k"][0]))
        await wait_until_async(
            lambda: conn.execute("SELECT records FROM outbox_resting()").fetchone() == (1,),
            what="it rests again",
        )
        await outbox("parked", "discard", OUTBOX, "--topic", missing, "--yes")
        assert waiting(conn) == waits["k"][:1]
        create_topic(kafka_real.bootstrap, missing)
        await until_waiting(conn)
    (told,) = (event for event in events if isinstance(event, TopicParked))
    assert (told.topic, told.records) == (missing, 3)
    committed = mode == "transactions"
    assert [one.id for one in read(kafka_real.bootstrap, missing, committed=committed)] == waits["k"][:1]
    assert len(read(kafka_real.bootstrap, topic, committed=committed)) == len(stashed["k"] + stashed["l"])


# --- terms that fail one after the other --------------------------------------------------------


async def test_a_fault_in_each_term_is_told_everywhere(
    tmp_path: Path,
    dsn: str,
    conn: Conn,
    kafka_real: RealKafka,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stash(conn, topic, ["k"])
    config = configured(
        tmp_path, dsn, kafka_real.bootstrap, "message_timeout = 2", session_timeout=4, receive_deadline=1
    )
    path = str(next(iter(tmp_path.glob("*.toml"))))  # noqa: ASYNC240 # nothing runs yet

    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(InFlight, "add", fail)
    failing = "SELECT terms, reason FROM tube_failing_list()"
    async with running(config) as events:
        await wait_until_async(lambda: (conn.execute(failing).fetchone() or (0,))[0] >= 2, what="it is told")
        status = await apart(path, "outbox", "status")
        findings = await apart(path, "doctor", code=1)
        metrics = await apart(path, "status", "--prometheus")
        with closing(FleetWatcher([Database(SecretStr(dsn))])) as watcher:
            of_top = "\n".join(troubles(watcher.sample()))
        for shown in (status, findings, of_top):
            assert re.search(r"terms have failed in a row, for [^:]+: RuntimeError: a fault of ours", shown)
        assert re.search(r"pytube_fleet_failing_terms\{.*\} [2-9]", metrics)
        monkeypatch.undo()
        await until_waiting(conn)
    assert [type(event) for event in events].count(TermsFail) == 1, "told once"
    assert conn.execute(failing).fetchone() is None, "the term that ended in order has mended it"


# --- whatever an INSERT can store ---------------------------------------------------------------

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
cells = st.one_of(st.none(), texts)


def arrays(depth: int = 2) -> st.SearchStrategy[Any]:
    """Arrays of texts as Postgres takes them: rectangular, of any dimensions."""
    flat: st.SearchStrategy[Any] = st.lists(cells, max_size=3)
    if not depth:
        return flat
    return st.one_of(
        flat,
        st.integers(1, 2).flatmap(lambda n: st.lists(st.lists(cells, min_size=n, max_size=n), max_size=2)),
    )


rows = st.fixed_dictionaries(
    {
        "kafka_topic": st.one_of(st.sampled_from(["", ".", "__consumer_offsets", "a b"]), st.just("…")),
        "kafka_key": cells,
        "kafka_value": cells,
        "kafka_header_keys": arrays(),
        "kafka_header_values": arrays(),
        "partition_key": cells,
        "create_time": st.sampled_from(
            ["now", "infinity", "-infinity", "4713-01-01 BC", "294276-12-31", "1970-01-01"]
        ),
    }
)


async def test_any_row_is_delivered_or_parked_and_the_next_one_of_another_key_arrives(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, topic: str
) -> None:
    known: set[int] = set()
    """The ids of earlier examples."""

    @given(st.lists(rows, min_size=1, max_size=4))
    @settings(max_examples=60, deadline=None, database=None, phases=[Phase.explicit, Phase.generate])
    def check(odd: list[dict[str, Any]]) -> None:
        columns = sorted(odd[0])
        statement = (
            f"INSERT INTO tube.{OUTBOX} ({', '.join(columns)})"
            f" SELECT {', '.join(['%s'] * len(columns))} RETURNING id"
        )
        ids: set[int] = set()
        for row in odd:
            given = row | {"kafka_topic": topic if row["kafka_topic"] == "…" else row["kafka_topic"]}
            ids |= {number for (number,) in conn.execute(statement.encode(), [given[one] for one in columns])}
        ids |= set(stash(conn, topic, ["\x01another"])["\x01another"])

        def left() -> set[int]:
            return ids & set(waiting(conn)) - set(parked(conn))

        wait_until(lambda: not left(), what=lambda: f"waiting are {left()} of {odd}")
        known.update(ids)

    async with running(configured(tmp_path, dsn, kafka_real.bootstrap)) as events:
        await asyncio.to_thread(check)
        set_aside = set(parked(conn))
    assert [type(event) for event in events].count(LeaderRevoked) == 1, "the one term went on until the end"
    found = {one.id for one in read(kafka_real.bootstrap, topic)}
    assert found | set_aside == known, "each is delivered, or parked"
    assert not found & set_aside
