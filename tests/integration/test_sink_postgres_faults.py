"""The sink `postgres` and what goes wrong at its database: poison, locks, races, lost connections, rights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pytube.embedded.postgres import Postgres
from pytube.errors import ConfigError, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Reject, Result, Retry, Stale, Token
from pytube.sinks import postgres
from pytube.sinks.postgres import PostgresSink
from pytube.testing import batch
from tests.helpers.logs import capture_logs
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import wait_until_async

Eye = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def eye(bare_dsn: str) -> Iterator[Eye]:
    """A session that sees what the sink wrote."""
    with psycopg.connect(bare_dsn, autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def opened(dsn: str, **options: object) -> AsyncIterator[PostgresSink]:
    sink = PostgresSink.from_options({"dsn": dsn, "table": "copy", "create": True, **options})
    try:
        await sink.open()
        yield sink
    finally:
        await sink.close()


def rows(eye: Eye, query: str = "SELECT id, doc FROM copy ORDER BY id") -> list[tuple[Any, ...]]:
    return eye.execute(query).fetchall()


async def until_waiting(eye: Eye, sessions: int = 1) -> None:
    """Until so many sessions of the sink wait for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pytube sink'"
        " AND wait_event_type = 'Lock' AND datname = current_database()"
    )
    await wait_until_async(lambda: rows(eye, query) == [(sessions,)], what="a session waits for a lock")


# --- one document at fault ----------------------------------------------------------------------


async def test_poison_costs_itself_alone(bare_dsn: str, eye: Eye) -> None:
    eye.execute("CREATE TABLE copy (id bigint PRIMARY KEY, n smallint, name varchar(5) NOT NULL)")
    documents: dict[Any, Any] = {key: {"n": key, "name": "fine"} for key in range(100)}
    documents |= {7: {"n": 70_000, "name": "wide"}, 50: {"n": 1}, 99: {"n": 1, "name": "too long"}, 60: [1]}
    async with opened(bare_dsn, key=["id"], columns=["n", "name"]) as sink:
        results = await sink.send(batch(documents))
    rejected = {key: result for key, result in zip(documents, results, strict=True) if result is not OK}
    assert {key: type(result) for key, result in rejected.items()} == dict.fromkeys((7, 50, 99, 60), Reject)
    assert "22003" in str(rejected[7])
    assert "null value" in str(rejected[50])
    assert [row[0] for row in rows(eye, "SELECT id FROM copy ORDER BY id")] == sorted(
        documents.keys() - rejected
    )
    # Its stamp was rolled back with it: a later, healthy version is written.
    async with opened(bare_dsn, key=["id"], columns=["n", "name"]) as sink:
        assert await sink.send(batch({7: {"n": 7, "name": "fine"}})) == [OK]


async def test_many_at_fault_take_one_more_transaction(
    bare_dsn: str, eye: Eye, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a search for each: that took 427 statements for these documents."""
    eye.execute("CREATE TABLE copy (id bigint PRIMARY KEY, n smallint)")
    execute, sent = psycopg.AsyncCursor.execute, []

    async def counted(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        sent.append(query)
        return await execute(self, query, *arguments, **options)

    documents = {key: {"n": 70_000 if key % 10 == 3 else key} for key in range(500)}
    async with opened(bare_dsn, key=["id"], columns=["n"], pool_size=1) as sink:
        assert await sink.send(batch({1000: {"n": 1}})) == [OK]
        (before,) = rows(eye, "SELECT pg_backend_pid(), xmin::text::bigint FROM copy")
        monkeypatch.setattr(psycopg.AsyncCursor, "execute", counted)
        results = await sink.send(batch(documents))
    assert [key for key in documents if results[key] is not OK] == list(range(3, 500, 10))
    assert rows(eye, "SELECT count(*) FROM copy") == [(451,)]
    assert len(sent) <= 8  # two of them look whether a column has another type by now
    # Of one transaction: each subtransaction has a number, and nothing else has drawn one in between.
    numbers = rows(eye, "SELECT count(*), max(xmin::text::bigint) FROM copy WHERE id < 500")
    assert numbers[0][0] == 450
    assert numbers[0][1] - before[1] < 450 + 2 * 50 + 10


@pytest.mark.parametrize(
    ("documents", "when"),
    [
        pytest.param(
            {1: {"n": 70_000}, 2: {"n": 2}}, "current_setting('pytube.tube', true) <> ''", id="refused"
        ),
        pytest.param({1: None, 2: {"n": 2}}, "true", id="deleted"),
    ],
)
async def test_a_worker_that_is_stopped_while_a_batch_is_written_holds_no_lock(
    bare_dsn: str, eye: Eye, proxy: Proxy, documents: dict[int, object], when: str
) -> None:
    """The batch of its successor would wait for it, whether documents are refused, or deleted, or not."""
    eye.execute("CREATE TABLE copy (id bigint PRIMARY KEY, n smallint)")
    eye.execute("INSERT INTO copy VALUES (1, 1)")
    eye.execute(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF {when} THEN PERFORM pg_advisory_xact_lock(1); END IF;"
        " RETURN NEW; END $$"
    )
    eye.execute("CREATE TRIGGER hold BEFORE INSERT ON copy FOR EACH ROW EXECUTE FUNCTION hold()")
    eye.execute("SELECT pg_advisory_lock(1)")
    async with opened(through(proxy, bare_dsn), key=["id"], columns=["n"], pool_size=1) as sink:
        sending = asyncio.create_task(sink.send(batch(documents)))
        await until_waiting(eye)
        proxy.switch(Mode.REQUESTS_LOST)  # as of a process that is stopped here
        eye.execute("SELECT pg_advisory_unlock(1)")
        open_ones = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pytube sink'"
            " AND datname = current_database() AND state <> 'idle'"
        )
        await wait_until_async(lambda: rows(eye, open_ones) == [(0,)], timeout=8, what="nothing is open")
        assert rows(eye, "SELECT id FROM copy WHERE n = 2") == [(2,)]
        sending.cancel()


async def test_a_delete_spares_the_row_of_a_newer_write_that_comes_before_it(
    bare_dsn: str, eye: Eye, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stamps and deletes are two transactions: the newer write is under way when the second one begins."""
    eye.execute("CREATE TABLE copy (id bigint PRIMARY KEY, n smallint)")
    async with opened(bare_dsn, key=["id"], columns=["n"], pool_size=1) as sink:
        await sink.send(batch({1: {"n": 1}, 2: {"n": 2}}))
        with psycopg.connect(bare_dsn) as newer:

            def write_newer(lost: Sequence[tuple[Any, ...]]) -> dict[int, Result]:
                newer.execute("UPDATE copy_pytube SET token = token + 1 WHERE id = 1")
                newer.execute("UPDATE copy SET n = 5 WHERE id = 1")
                return stale(lost)

            stale = postgres._stale
            monkeypatch.setattr(postgres, "_stale", write_newer)
            sending = asyncio.create_task(sink.send(batch({1: None, 2: None}, token=(1, 2))))
            await until_waiting(eye)
        await sending
        assert rows(eye, "SELECT id, n FROM copy") == [(1, 5)]
        assert rows(eye, "SELECT id, deleted_at IS NULL FROM copy_pytube ORDER BY id") == [
            (1, True),
            (2, False),
        ]


async def test_all_kinds_among_documents_at_fault(bare_dsn: str, eye: Eye) -> None:
    """Names that need quotes; a trigger's words; a newer write; deletes; what is no text at all."""
    eye.execute(
        'CREATE TABLE copy ("the %id" text, pytube_docs int, doc jsonb, PRIMARY KEY (pytube_docs, "the %id"))'
    )
    eye.execute(
        "CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.doc ? 'bad' THEN RAISE 'it''s bad' USING HINT = 'make it good', ERRCODE = 'P0001'; END IF;"
        " ASSERT NOT NEW.doc ? 'assert', 'asserted'; RETURN NEW; END $$"
    )
    eye.execute("CREATE TRIGGER judge BEFORE INSERT ON copy FOR EACH ROW EXECUTE FUNCTION judge()")
    async with opened(bare_dsn, key=["pytube_docs", "the %id"], stamps="it's $pytube$ %s") as sink:
        assert await sink.send(batch({"gone": {}, "newer": {"v": 2}}, token=(1, 9))) == [OK, OK]
        documents = {
            "gone": None,
            "never": None,
            "newer": {"v": 1},
            "bad": {"bad": 1},
            "assert": {"assert": 1},
            "nul": b'"\\u0000"',
            "bytes": b'"\xff"',
            "torn": b"{",
            "it's": b'{"n": 1.00}',
            'a "\\{}, %s': {},
        }
        results = dict(zip(documents, await sink.send(batch(documents, token=(1, 8))), strict=True))
        assert results.pop("newer") == Stale(int(Token(1, 9)))
        assert results.pop("gone") == Stale(int(Token(1, 9)))
        again = await sink.send(batch({"gone": None, "torn": b"{", "it's": {"n": 2}}, token=(1, 10)))
        assert [type(result) for result in again] == [type(OK), Reject, type(OK)]
    refused = {key: result for key, result in results.items() if result is not OK}
    assert refused.keys() == {"bad", "assert", "nul", "bytes", "torn"}
    assert refused["bad"] == Reject("it's bad (make it good) (SQLSTATE P0001)")
    assert refused["assert"] == Reject("asserted (SQLSTATE P0004)")
    assert "22021" in str(refused["bytes"])
    found = rows(eye, 'SELECT "the %id", doc::text FROM copy ORDER BY "the %id" COLLATE "C"')
    assert found == [('a "\\{}, %s', "{}"), ("it's", '{"n": 2}'), ("newer", '{"v": 2}')]


@pytest.mark.parametrize("deferred", ["", " DEFERRABLE INITIALLY DEFERRED"])
async def test_documents_at_fault_beside_those_that_need_each_other(
    deferred: str, bare_dsn: str, eye: Eye
) -> None:
    eye.execute(f"CREATE TABLE copy (id bigint PRIMARY KEY, parent bigint REFERENCES copy{deferred})")
    documents = {1: {"parent": 2}, 2: {"parent": 3}, 3: {"parent": None}, 4: {"parent": 5}, 6: {"parent": 9}}
    async with opened(bare_dsn, key=["id"], columns=["parent"]) as sink:
        results = await sink.send(batch(documents))
    assert [type(result) for result in results] == [type(OK)] * 3 + [Reject] * 2
    assert rows(eye, "SELECT id FROM copy ORDER BY id") == [(1,), (2,), (3,)]


async def test_a_chain_of_documents_beside_one_at_fault_takes_few_passes(bare_dsn: str, eye: Eye) -> None:
    eye.execute("CREATE TABLE copy (id bigint PRIMARY KEY, parent bigint REFERENCES copy)")
    eye.execute("CREATE SEQUENCE attempts")
    eye.execute(
        "CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM nextval('public.attempts'); RETURN NEW; END $$"
    )
    eye.execute("CREATE TRIGGER count_it BEFORE INSERT ON copy FOR EACH ROW EXECUTE FUNCTION count_it()")
    documents: dict[Any, Any] = {key: {"parent": key + 1} for key in range(100)} | {
        100: {},
        101: {"parent": 7000},
    }
    async with opened(bare_dsn, key=["id"], columns=["parent"]) as sink:
        results = await sink.send(batch(documents))
    assert [type(result) for result in results] == [type(OK)] * 101 + [Reject]
    ((attempts,),) = rows(eye, "SELECT last_value FROM attempts")
    assert attempts < 5 * len(documents)


async def test_without_the_right_to_use_plpgsql_the_worker_sends_smaller_parts(
    bare_dsn: str, eye: Eye
) -> None:
    eye.execute("REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC")
    eye.execute("CREATE ROLE only_sql LOGIN; GRANT CREATE, USAGE ON SCHEMA public TO only_sql")
    try:
        dsn = make_conninfo(bare_dsn, user="only_sql")
        async with opened(dsn) as sink:
            with pytest.raises(SinkError, match="plpgsql"):
                await sink.send(batch({1: {}, 2: b"{"}))
            assert rows(eye) == []
            assert [type(one) for one in await sink.send(batch({2: b"{"}))] == [Reject]
            assert await sink.send(batch({1: {}})) == [OK]
    finally:
        eye.execute("DROP OWNED BY only_sql; DROP ROLE only_sql")


async def test_a_delete_that_the_database_refuses(bare_dsn: str, eye: Eye) -> None:
    async with opened(bare_dsn) as sink:
        assert await sink.send(batch({1: {}, 2: {}, 3: {}})) == [OK] * 3
        eye.execute("CREATE TABLE dependent (shard int, id bigint, FOREIGN KEY (shard, id) REFERENCES copy)")
        eye.execute("INSERT INTO dependent VALUES (0, 2)")
        results = await sink.send(batch({1: None, 2: None, 3: {"new": 1}, 4: None}, token=(1, 2)))
        assert [type(result) for result in results] == [type(OK), Reject, type(OK), type(OK)]
        assert [type(one) for one in await sink.send(batch({4: None, 2: None}, token=(1, 2)))] == [
            type(OK),
            Reject,
        ]
        assert rows(eye) == [(2, {}), (3, {"new": 1})]
        # The session is usable, and the delete succeeds once nothing depends on the row.
        eye.execute("TRUNCATE dependent")
        assert await sink.send(batch({2: None}, token=(1, 3))) == [OK]
        assert rows(eye) == [(3, {"new": 1})]


async def test_numbers_keep_their_digits(bare_dsn: str, eye: Eye) -> None:
    number = "1234567890123456789012345678901234567890.12345678901234567890123"
    types = {
        "amount": "numeric",
        "ratio": "double precision",
        "rest": "jsonb",
        "at": "timestamp with time zone",
    }
    columns = {"amount": "Amount", "ratio": "ratio", "rest": "rest", "at": "at"}
    body = b'{"Amount": %b, "ratio": 0.1, "rest": {"n": %b}, "at": "2024-02-03T04:05:06.7Z", "x": 1}' % (
        number.encode(),
        number.encode(),
    )
    async with opened(bare_dsn, columns=columns, types=types) as sink:
        assert await sink.send(batch({1: body, 2: {"Amount": None}})) == [OK, OK]
    found = rows(
        eye, "SELECT amount, ratio, rest->>'n', at = '2024-02-03 04:05:06.7+00' FROM copy ORDER BY id"
    )
    assert found == [(Decimal(number), 0.1, number, True), (None, None, None, None)]


# --- several writers ----------------------------------------------------------------------------


def stop_within(eye: Eye, event: str) -> None:
    """Who INSERTs into the table, or DELETEs from it, stops in the transaction while `gate` is locked."""
    eye.execute("CREATE TABLE gate (id int)")
    eye.execute(
        "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN LOCK TABLE gate; RETURN NULL; END'"
    )
    eye.execute(f"CREATE TRIGGER stop AFTER {event} ON copy FOR EACH ROW EXECUTE FUNCTION stop()")


async def test_a_late_insert_waits_for_a_delete_that_is_not_committed(bare_dsn: str, eye: Eye) -> None:
    """The row is gone for the one, and there for the other; only the row of stamps keeps them apart."""
    async with opened(bare_dsn) as zombie, opened(bare_dsn) as successor:
        assert await zombie.send(batch({1: {"v": 1}}, token=(5, 1))) == [OK]
        stop_within(eye, "DELETE")
        with psycopg.connect(bare_dsn) as gate:
            gate.execute("LOCK TABLE gate")
            delete = asyncio.create_task(successor.send(batch({1: None}, token=(9, 1))))
            await until_waiting(eye, 1)
            late = asyncio.create_task(zombie.send(batch({1: {"late": 1}}, token=(5, 2))))
            await until_waiting(eye, 2)
        assert await delete == [OK]
        assert await late == [Stale(int(Token(9, 1)))]
    assert rows(eye) == []


async def test_a_delete_sees_the_row_that_it_waited_for(bare_dsn: str, eye: Eye) -> None:
    async with opened(bare_dsn) as first, opened(bare_dsn) as second:
        stop_within(eye, "INSERT")
        with psycopg.connect(bare_dsn) as gate:
            gate.execute("LOCK TABLE gate")
            insert = asyncio.create_task(first.send(batch({1: {"v": 1}}, token=(1, 1))))
            await until_waiting(eye, 1)
            delete = asyncio.create_task(second.send(batch({1: None}, token=(2, 1))))
            await until_waiting(eye, 2)
        assert await insert == [OK]
        assert await delete == [OK]
    assert rows(eye) == []


async def test_writers_in_opposite_orders_do_not_deadlock(bare_dsn: str, eye: Eye) -> None:
    async with opened(bare_dsn) as one, opened(bare_dsn) as other:
        for counter in range(1, 11):
            up = {key: {"by": "one"} for key in range(300)}
            down = {key: {"by": "other"} if key % 2 else None for key in reversed(range(300))}
            answers = await asyncio.gather(
                one.send(batch(up, token=(1, counter))), other.send(batch(down, token=(2, counter)))
            )
            assert set(answers[1]) == {OK}
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert rows(eye, deadlocks) == [(0,)]
    assert rows(eye) == [(key, {"by": "other"}) for key in range(1, 300, 2)]


async def test_a_lock_of_somebody_else_puts_the_batch_off(bare_dsn: str) -> None:
    async with opened(bare_dsn, lock_timeout=0.05) as sink:
        assert await sink.send(batch({1: {"v": 1}})) == [OK]
        with psycopg.connect(bare_dsn) as other:
            other.execute("SELECT FROM copy FOR UPDATE")
            results = await sink.send(batch({1: {"v": 2}, 2: {}}, token=(1, 2)))
            assert [type(result) for result in results] == [Retry, Retry]
        assert await sink.send(batch({1: {"v": 2}, 2: {}}, token=(1, 2))) == [OK, OK]


async def test_a_deadlock_with_somebody_else_is_retried(bare_dsn: str, eye: Eye) -> None:
    async with opened(bare_dsn) as sink:
        assert await sink.send(batch({1: {"v": 1}, 2: {"v": 1}})) == [OK, OK]
        with psycopg.connect(bare_dsn) as other:
            other.execute("SET deadlock_timeout = '1h'")  # so that the sink is the victim
            other.execute("SELECT FROM copy WHERE id = 2 FOR UPDATE")
            sending = asyncio.create_task(sink.send(batch({1: {"v": 2}, 2: {"v": 2}}, token=(1, 2))))
            await until_waiting(eye)
            await asyncio.to_thread(other.execute, "SELECT FROM copy WHERE id = 1 FOR UPDATE")
        answers = await sending
        if answers != [
            OK,
            OK,
        ]:  # on a busy machine it may have had row 1 again each time before `other` woke up
            deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            await wait_until_async(lambda: rows(eye, deadlocks) == [(3,)], what="it has tried three times")
            answers = await sink.send(batch({1: {"v": 2}, 2: {"v": 2}}, token=(1, 2)))
        assert answers == [OK, OK]
    assert rows(eye) == [(1, {"v": 2}), (2, {"v": 2})]


# --- tombstones and scans -----------------------------------------------------------------------


async def test_old_tombstones_are_removed_and_young_ones_stay(bare_dsn: str, eye: Eye) -> None:
    async with opened(bare_dsn) as sink:
        assert set(await sink.send(batch(dict.fromkeys(range(1500))))) == {OK}
    eye.execute("UPDATE copy_pytube SET deleted_at = deleted_at - interval '1 hour' WHERE id < 1200")
    counted = "SELECT count(*) FROM copy_pytube WHERE deleted_at IS NOT NULL"
    async with opened(bare_dsn) as sink:
        await sink.send(batch({1: {}}, token=(1, 2)))
        assert rows(eye, counted) == [(499,)]  # a step, of those that are old
        await sink.send(batch({2: {}}, token=(1, 3)))
        assert rows(eye, counted) == [(300,)]
        assert rows(eye) == [(1, {}), (2, {})]


async def test_rows_without_a_stamp_are_old(bare_dsn: str, eye: Eye) -> None:
    eye.execute("CREATE TABLE copy (shard int, id uuid, doc json, UNIQUE (id, shard))")
    old, new = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
    eye.execute("INSERT INTO copy VALUES (0, %s), (1, gen_random_uuid())", [old])
    async with opened(bare_dsn) as sink:
        assert await sink.send(batch({new: {}}, seq=5)) == [OK]
        assert [page async for page in sink.scan("conformance", 0, 5)] == [[old]]
        assert [page async for page in sink.scan("conformance", 0, 6)] == [[old, new]]
        assert [page async for page in sink.scan("another", 0, 6)] == [[old]]


async def test_key_without_a_shard(bare_dsn: str, eye: Eye) -> None:
    async with opened(bare_dsn, key=["id"]) as sink:
        assert await sink.send(batch({(3, 7): {"v": 1}}, token=(1, 1), seq=1)) == [OK]
        # The table was spread anew: another shard has the id, and the old one's document is no more.
        assert await sink.send(batch({(5, 7): {"v": 2}}, token=(1, 2), seq=2)) == [OK]
        assert await sink.send(batch({(3, 7): None}, token=(1, 1))) == [Stale(int(Token(1, 2)))]
        assert [page async for page in sink.scan("conformance", 3, 9)] == [[]]
        assert [page async for page in sink.scan("conformance", 5, 9)] == [[7]]
    assert rows(eye) == [(7, {"v": 2})]


async def test_a_limit_of_the_role_puts_off_no_batch(bare_dsn: str, eye: Eye) -> None:
    name = conninfo_to_dict(bare_dsn)["dbname"]
    eye.execute(f"ALTER DATABASE {name} SET statement_timeout = '1s'".encode())
    async with opened(bare_dsn) as sink:
        assert sink._pool is not None
        assert await sink._pool.rows("SHOW statement_timeout") == [("0",)]


@pytest.mark.parametrize(
    ("options", "level"), [({}, "on"), ({"synchronous_commit": "remote_apply"}, "remote_apply")]
)
async def test_an_answer_means_as_much_as_the_options_say(
    options: dict[str, object], level: str, bare_dsn: str, eye: Eye
) -> None:
    name = conninfo_to_dict(bare_dsn)["dbname"]
    eye.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
    async with opened(bare_dsn, **options) as sink:
        assert sink._pool is not None
        assert await sink._pool.rows("SHOW synchronous_commit") == [(level,)]


def test_a_weaker_commit_is_refused() -> None:
    with pytest.raises(ConfigError, match='expected "on" or "remote_apply"'):
        PostgresSink.from_options({"dsn": "", "table": "copy", "synchronous_commit": "off"})


async def test_a_server_that_is_silent_while_the_sink_is_opened(
    bare_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(connection: psycopg.AsyncConnection[Any], _: object) -> None:
        await connection.execute("SELECT pg_sleep(3600)")

    monkeypatch.setattr("pytube.sinks.postgres.look", hang)
    monkeypatch.setattr("pytube.sinks.postgres._OPEN_LIMIT", 0.2)
    with pytest.raises(SinkUnavailable, match="no answer within"):
        async with opened(bare_dsn):
            pass


# --- the database goes away ---------------------------------------------------------------------


async def sent(sink: PostgresSink, what: Batch) -> list[Result]:
    """Send until the database is there."""
    while True:
        with suppress(SinkUnavailable, SinkTimeout):
            return list(await sink.send(what))
        await asyncio.sleep(0.02)


async def test_server_killed_within_a_write(bare_dsn: str, postgres: Postgres) -> None:
    async with opened(bare_dsn) as sink:
        assert await sink.send(batch({1: {"v": 1}})) == [OK]
        with psycopg.connect(bare_dsn) as gate:
            gate.execute("LOCK TABLE copy")
            sending = asyncio.create_task(sink.send(batch({1: {"v": 2}}, token=(1, 2))))
            with psycopg.connect(bare_dsn, autocommit=True) as eye:
                await until_waiting(eye)
            postgres.kill()
            with pytest.raises(SinkTimeout):
                await sending
            with suppress(psycopg.Error):
                gate.rollback()
        with pytest.raises(SinkUnavailable):
            await sink.send(batch({1: {"v": 2}}, token=(1, 2)))
        await asyncio.to_thread(postgres.start)
        assert await sent(sink, batch({1: {"v": 3}, 2: None}, token=(1, 3))) == [OK, OK]
        with psycopg.connect(bare_dsn) as eye:
            assert rows(eye) == [(1, {"v": 3})]


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    with Proxy(int(str(conninfo_to_dict(postgres.dsn())["port"]))) as proxy:
        yield proxy


def through(proxy: Proxy, dsn: str) -> str:
    return make_conninfo(dsn, host="127.0.0.1", port=proxy.port)


async def test_answers_get_lost(bare_dsn: str, eye: Eye, proxy: Proxy) -> None:
    async with opened(through(proxy, bare_dsn)) as sink:
        assert await sink.send(batch({1: {"v": 1}})) == [OK]
        proxy.switch(Mode.ANSWERS_LOST)
        sending = asyncio.create_task(sink.send(batch({1: {"v": 2}}, token=(1, 2))))
        await wait_until_async(lambda: rows(eye) == [(1, {"v": 2})], what="the write is done")
        proxy.switch(Mode.CUT)
        with pytest.raises(SinkTimeout):
            await sending
        with pytest.raises(SinkUnavailable):
            await sink.send(batch({1: {"v": 3}}, token=(1, 3)))
        proxy.switch(Mode.PASS)
        assert await sink.send(batch({1: {"v": 3}}, token=(1, 3))) == [OK]
    assert rows(eye) == [(1, {"v": 3})]


async def test_a_send_that_is_cancelled_leaves_its_session(bare_dsn: str, eye: Eye, proxy: Proxy) -> None:
    async with opened(through(proxy, bare_dsn), pool_size=1) as sink:
        proxy.switch(Mode.HALF_OPEN)
        hanging = batch({1: {"v": 1}})
        sending = asyncio.create_task(sink.send(hanging))
        await wait_until_async(lambda: proxy.swallowed > 0, what="the statement is sent")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await sink.abandon(hanging)
        proxy.switch(Mode.PASS)
        assert await sink.send(batch({1: {"v": 2}}, token=(1, 2))) == [OK]
    assert rows(eye) == [(1, {"v": 2})]


# --- what is checked, and what is said ----------------------------------------------------------


async def test_a_table_that_is_dropped_under_a_sink_that_creates_it(bare_dsn: str, eye: Eye) -> None:
    """What brings it back is a backfill, not an option that is set."""
    async with opened(bare_dsn, create=True) as sink:
        eye.execute("DROP TABLE copy")
        with pytest.raises(SinkUnavailable, match="does not exist"):
            await sink.send(batch({1: {"v": 1}}))
        with pytest.raises(SinkUnavailable, match=r"no table public\.copy; a backfill creates and fills it"):
            await sink.send(batch({1: {"v": 1}}))


@pytest.mark.parametrize(
    ("statements", "options", "said"),
    [
        ("", {}, "there is no table public.copy; create it, or set create = true"),
        ("CREATE TABLE copy (shard int, id bigint)", {}, 'public.copy has no column "doc"'),
        ("CREATE TABLE copy (shard int, id bigint, doc jsonb)", {}, "unique index on (shard, id)"),
        (
            "CREATE TABLE copy (shard int, id int, doc jsonb); CREATE UNIQUE INDEX ON copy (shard, id, doc)",
            {},
            "unique index on (shard, id)",
        ),
        (
            "CREATE TABLE copy (shard int, id date, doc text, PRIMARY KEY (shard, id))",
            {},
            '"id" of public.copy is date',
        ),
        (
            "CREATE TABLE copy (shard int, id int, doc jsonb, PRIMARY KEY (shard, id))",
            {},
            "CREATE TABLE IF NOT EXISTS",
        ),
        ("CREATE VIEW copy AS SELECT 1 AS shard", {}, "there is no table public.copy"),
    ],
)
async def test_tables_that_do_not_fit(
    bare_dsn: str, eye: Eye, statements: str, options: dict[str, object], said: str
) -> None:
    if statements:
        eye.execute(statements)
    with pytest.raises(ConfigError, match='sink "postgres"') as raised:
        async with opened(bare_dsn, create=False, **options):
            pass
    assert said in str(raised.value)


async def test_least_privilege_and_what_lacks(bare_dsn: str, eye: Eye) -> None:
    """The rights that the documentation lists are enough; each one that lacks is named."""
    async with opened(bare_dsn):
        pass
    eye.execute("CREATE ROLE copy_writer LOGIN")
    try:
        dsn = make_conninfo(bare_dsn, user="copy_writer")
        eye.execute("GRANT SELECT, DELETE ON copy TO copy_writer")
        with pytest.raises(ConfigError, match="the role has no right to INSERT, UPDATE on public.copy"):
            async with opened(dsn, create=False):
                pass
        eye.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON copy, copy_pytube TO copy_writer")
        eye.execute("ALTER ROLE copy_writer SET synchronous_commit = off")
        eye.execute("ALTER ROLE copy_writer SET default_transaction_isolation = 'serializable'")
        eye.execute(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.doc = to_json("
            "current_setting('synchronous_commit') || ' ' || current_setting('transaction_isolation'));"
            " RETURN NEW; END $$;"
            " CREATE TRIGGER note BEFORE INSERT ON copy FOR EACH ROW EXECUTE FUNCTION note()"
        )
        async with opened(dsn, create=True) as sink:
            assert await sink.send(batch({1: {}, 2: None})) == [OK, OK]
            assert [page async for page in sink.scan("conformance", 0, 2)] == [[1]]
        assert rows(eye) == [(1, "on read committed")]
        # A policy that hides rows would make deletes miss them.
        eye.execute("ALTER TABLE copy ENABLE ROW LEVEL SECURITY")
        async with opened(dsn) as sink:
            with pytest.raises(SinkUnavailable, match="row-level security"):
                await sink.send(batch({1: None}, token=(1, 2)))
    finally:
        eye.execute("DROP OWNED BY copy_writer; DROP ROLE copy_writer")


async def test_a_note_waits_for_no_other_session(bare_dsn: str, eye: Eye) -> None:
    async with opened(bare_dsn) as sink:
        assert await sink.send(batch({1: {}})) == [OK]
        tables = sink._tables
        with eye.transaction():
            eye.execute("LOCK TABLE copy_pytube IN SHARE UPDATE EXCLUSIVE MODE")
            with pytest.raises(SinkUnavailable, match="no note was left"):
                await sink.write_note("ours", "seq 1")
        assert (sink.cannot_note(), sink._tables) == (None, tables), "it is no fault of the tables"
        await sink.write_note("ours", "seq 2")
        assert await sink.read_note("ours") == "seq 2"


async def test_a_note_is_the_owners(bare_dsn: str, eye: Eye) -> None:
    """Who may only write is refused once; that is no reason to look at the tables anew."""
    async with opened(bare_dsn) as sink:
        await sink.write_note("ours", "seq 2")
    eye.execute("CREATE ROLE note_writer LOGIN; GRANT ALL ON copy, copy_pytube TO note_writer")
    try:
        async with opened(make_conninfo(bare_dsn, user="note_writer"), create=False) as sink:
            assert await sink.send(batch({1: {}})) == [OK]
            tables = sink._tables
            assert tables is not None
            assert sink.cannot_note() is None
            with pytest.raises(ConfigError, match="must be owner"):
                await sink.write_note("ours", "seq 3")
            assert "must be owner" in (sink.cannot_note() or "")
            assert sink._tables is tables
            assert await sink.read_note("ours") == "seq 2"
    finally:
        eye.execute("DROP OWNED BY note_writer; DROP ROLE note_writer")


async def test_a_comment_of_somebody_else_stays(bare_dsn: str, eye: Eye) -> None:
    async with opened(bare_dsn) as sink:
        await sink.write_note("ours", "seq 2")
        for comment, held in (
            ("of the stamps", None),
            ("pytube: an old form", "seq 3"),
            ("pytube: [1]", "seq 3"),
        ):
            eye.execute(f"COMMENT ON TABLE copy_pytube IS '{comment}'")
            assert await sink.read_note("ours") is None
            await sink.write_note("ours", "seq 3")
            assert await sink.read_note("ours") == held


async def test_a_table_that_changes_while_the_sink_is_open(bare_dsn: str, eye: Eye) -> None:
    async with opened(bare_dsn) as sink:
        eye.execute("ALTER TABLE copy RENAME COLUMN doc TO body")
        with pytest.raises(SinkUnavailable, match='column "doc"'):
            await sink.send(batch({1: {}}))
        with pytest.raises(SinkUnavailable, match='has no column "doc"'):
            await sink.send(batch({1: {}}))
        eye.execute("ALTER TABLE copy RENAME COLUMN body TO doc; ALTER TABLE copy ALTER doc TYPE json")
        assert await sink.send(batch({1: {}})) == [OK]
        with pytest.raises(SinkUnavailable, match="ids are strs"):
            await sink.send(batch({"x": {}}))


async def test_a_column_made_wider_takes_what_it_refused(bare_dsn: str, eye: Eye) -> None:
    """After a fix of the table, a retry succeeds without a restart of the workers."""
    async with opened(bare_dsn, columns=["name"], types={"name": "varchar(3)"}) as sink:
        (refused,) = await sink.send(batch({1: {"name": "long"}}, token=(1, 1)))
        assert isinstance(refused, Reject), refused
        assert await sink.send(batch({2: {"name": "abc"}}, token=(1, 2))) == [OK]
        eye.execute("ALTER TABLE copy ALTER name TYPE varchar(4)")
        both = {1: {"name": "long"}, 2: {"name": "ab"}}
        assert await sink.send(batch(both, token=(1, 3))) == [OK, OK]
        assert rows(eye, "SELECT id, name FROM copy ORDER BY id") == [(1, "long"), (2, "ab")]


async def test_no_secret_is_told(bare_dsn: str, proxy: Proxy) -> None:
    canary = "c4n4ry-pass"
    proxy.switch(Mode.CUT)
    dsns = [make_conninfo(through(proxy, bare_dsn), password=canary), f"postgresql://u:{canary}@h:port:x/d"]
    with capture_logs() as logs:
        for dsn in dsns:
            with pytest.raises((ConfigError, SinkUnavailable)) as raised:
                async with opened(dsn) as sink:
                    assert canary not in repr(vars(sink))
            assert canary not in repr(raised.value)
        bad: list[dict[str, object]] = [
            {"pool_size": 0},
            {"types": {"x": "int); DROP TABLE"}},
            {"columns": {}},
        ]
        for options in bad:
            with pytest.raises(ConfigError) as refused:
                PostgresSink.from_options({"dsn": dsns[0], "table": "copy", "create": True, **options})
            assert canary not in str(refused.value)
    assert canary not in repr(logs)
