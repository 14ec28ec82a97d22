"""Enriching from real tables: what is read, and when it must be refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from pytube.config import EnrichConfig, PostgresConfig
from pytube.enrich.rows import Enricher, arguments_of, load_roots
from pytube.enrich.statements import ids_statement, statement_for
from pytube.errors import EnrichDataError, EnrichFailed, EnrichTimeout
from pytube.model import Id
from pytube.worker.database import Database
from tests.helpers.capture import open_session
from tests.helpers.database import preparing
from tests.helpers.roles import as_role, roles

Conn = psycopg.Connection[tuple[object, ...]]


def _items(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.items (id integer PRIMARY KEY, kind text, n integer)")
        conn.execute("INSERT INTO public.items VALUES (1, 'a', 10), (2, 'b', 20), (-3, 'a', 0)")
        conn.execute("SELECT tube_ensure_exists('t', 1)")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.items', 5)")


prepare = preparing(_items, "dsn")


class Reader:
    """An enricher on the pool of a worker."""

    def __init__(self, dsn: str, query: str | None = None, config: EnrichConfig | None = None) -> None:
        postgres = PostgresConfig(dsn=SecretStr(dsn), pool_size=2)
        self.pool = Database(postgres, ["t"], receive_deadline=5.0, emit=lambda _: None).pool
        if query is not None:
            config = EnrichConfig(mode="query", query=query)
        self.enricher = Enricher(self.pool, "t", config)
        self.statements: list[object] = []
        """The parameters of each statement that read rows."""
        self._record()

    def _record(self) -> None:
        documents = self.enricher._documents

        def recorded(*arguments: Any) -> Any:
            self.statements.append(arguments[-1])
            return documents(*arguments)

        self.enricher._documents = recorded  # type: ignore[assignment, method-assign]

    async def read(self, *ids: Id, shard: int = 5) -> dict[Id, bytes]:
        return dict((await self.enricher.read({shard: ids}))[shard].bodies)


@pytest.fixture
async def reader(dsn: str) -> AsyncIterator[Reader]:
    reader = Reader(dsn)
    yield reader
    await reader.pool.close()


async def test_the_row_as_json_and_nothing_for_what_is_gone(reader: Reader) -> None:
    assert await reader.read(1, -3, 99) == {
        1: b'{"id":1,"kind":"a","n":10}',
        -3: b'{"id":-3,"kind":"a","n":0}',
    }


@pytest.mark.parametrize(("ids", "planned_anew"), [((1,), 0), (tuple(range(100)), 5)])
async def test_a_plan_for_these_very_ids_is_made_for_many_of_them_only(
    dsn: str, ids: tuple[int, ...], planned_anew: int
) -> None:
    query = (
        "SELECT i.id, row_to_json(i) FROM public.items i WHERE i.id = ANY(%(ids)s) AND i.n >= ANY(%(ids)s)"
    )
    reader = Reader(dsn, query)
    for _ in range(5):  # then it is prepared
        await reader.read(*ids)
    for _ in range(10):  # of which five are planned before the server itself compares
        await reader.read(*ids)
    async with reader.pool.session(settings=reader.enricher._settings({5: ids})) as session:
        plans = await session.rows(
            "SELECT custom_plans FROM pg_prepared_statements WHERE statement ~ 'items i'"
        )
    await reader.pool.close()
    assert plans == [(planned_anew,)]


async def test_a_predicate_that_changes_counts_from_the_next_read_on(reader: Reader, conn: Conn) -> None:
    assert set(await reader.read(1, 2)) == {1, 2}
    conn.execute("SELECT tube_ensure_exists('t', 1, 'kind = ''a'' AND n % 2 = 0')")
    assert set(await reader.read(1, 2)) == {1}


async def test_a_session_that_was_ended_meanwhile_is_replaced(reader: Reader, conn: Conn) -> None:
    assert set(await reader.read(1)) == {1}
    conn.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'pytube pool'"
    )
    assert set(await reader.read(2)) == {2}


async def test_a_query_may_give_rows_without_an_id(dsn: str) -> None:
    reader = Reader(
        dsn,
        "SELECT i.id, to_json(i.n) FROM public.items i WHERE i.id = ANY(%(ids)s) UNION ALL SELECT NULL, '0'",
    )
    assert await reader.read(1, 2) == {1: b"10", 2: b"20"}
    await reader.pool.close()


@pytest.mark.parametrize("predicate", [None, "kind = 'a'"])
async def test_a_query_that_returns_the_ids_of_something_else_deletes_nothing(
    dsn: str, conn: Conn, predicate: str | None
) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 1, %s)", (predicate,))
    conn.execute("CREATE TABLE public.parts (id integer, item integer)")
    conn.execute("INSERT INTO public.parts VALUES (2, 1), (70, 1), (71, 3)")
    reader = Reader(
        dsn,
        "SELECT p.id, to_json(i.n) FROM public.items i JOIN public.parts p ON p.item = i.id"
        " WHERE i.id = ANY(%(ids)s)",
    )
    with pytest.raises(EnrichFailed, match=r"for public\.items returned .* id 2, which is none of %\(ids\)s"):
        await reader.read(1)
    assert await reader.read(2) == {}, "it has no parts, so nothing came"
    await reader.pool.close()


async def test_ids_of_a_shard_without_a_table_are_orphans(reader: Reader, conn: Conn) -> None:
    read = (await reader.enricher.read({6: [1]}))[6]
    assert (read.bodies, list(read.orphans)) == ({}, [1])
    conn.execute("SELECT tube_table_ensure_detached('t', 'public.items')")
    assert list((await reader.enricher.read({5: [1]}))[5].orphans) == [1]


@pytest.mark.parametrize("query", [None, "SELECT id, to_json(n) FROM public.items WHERE id = ANY(%(ids)s)"])
async def test_an_id_of_another_shard_names_no_row(dsn: str, conn: Conn, query: str | None) -> None:
    """A document of such a key is of a time when the table was spread otherwise."""
    reader = Reader(dsn, query)
    assert set(await reader.read(1, 2, -3, 99)) == {1, 2, -3}
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.items', 5, 4)")
    found = {shard: set(await reader.read(1, 2, -3, 99, shard=shard)) for shard in range(5, 9)}
    assert found == {5: set(), 6: {1, -3}, 7: {2}, 8: set()}
    assert (await reader.enricher.read({5: [1]}))[5].orphans == ()
    await reader.pool.close()


@pytest.mark.parametrize(
    ("query", "statements"),
    [
        (None, 1),
        ("SELECT id, to_json(n) FROM public.items WHERE id = ANY(%(ids)s)", 1),
        ("SELECT id, to_json(%(shard)s::int) FROM public.items WHERE id = ANY(%(ids)s)", 4),
    ],
    ids=["rows", "query", "query that asks for the shard"],
)
async def test_shards_of_one_table_are_read_by_one_statement(
    dsn: str, conn: Conn, query: str | None, statements: int
) -> None:
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.items', 5, 4)")
    reader = Reader(dsn, query)
    await reader.read(1)  # the registry is read once
    reader.statements.clear()
    found = await reader.enricher.read({shard: [1, 2, -3, 99] for shard in range(5, 9)})
    documents = {shard: {key: read.bodies[key] for key in read.bodies} for shard, read in found.items()}
    assert {shard: set(bodies) for shard, bodies in documents.items()} == {
        5: set(),
        6: {1, -3},
        7: {2},
        8: set(),
    }
    if statements > 1:
        assert documents[6][1] == b"6"
        assert documents[7][2] == b"7"
    assert len(reader.statements) == statements
    await reader.pool.close()


async def test_a_query_of_ones_own_obeys_the_predicate(dsn: str, conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 1, 'kind = ''a''')")
    reader = Reader(
        dsn,
        "SELECT i.id, jsonb_build_object('double', i.n * 2) FROM public.items i WHERE i.id = ANY(%(ids)s)",
    )
    assert await reader.read(1, 2) == {1: b'{"double": 20}'}
    await reader.pool.close()


async def test_a_query_that_one_row_makes_fail_is_told_from_one_that_is_wrong(dsn: str) -> None:
    bad_row = Reader(dsn, "SELECT id, to_json(1 / n) FROM public.items WHERE id = ANY(%(ids)s)")
    wrong = Reader(dsn, "SELECT id, to_json(none) FROM public.items WHERE id = ANY(%(ids)s)")
    for reader, error in ((bad_row, EnrichDataError), (wrong, EnrichFailed)):
        with pytest.raises(error):
            await reader.read(1, -3)
        await reader.pool.close()


@pytest.mark.parametrize(
    ("document", "state"),
    [
        ("(repeat('[', deep) || repeat(']', deep))::jsonb", "54001"),
        ("to_json(n::few)", "23514"),
        ("to_json(checked(n))", "P0001"),
    ],
)
async def test_a_row_that_no_document_can_be_made_of_stops_no_other(
    dsn: str, conn: Conn, document: str, state: str
) -> None:
    """Nested too deeply, against a domain's rule, refused by a function: whoever writes rows may cause it."""
    conn.execute("CREATE DOMAIN public.few AS integer CHECK (VALUE > 0)")
    conn.execute(
        "CREATE FUNCTION public.checked(n integer) RETURNS integer LANGUAGE plpgsql AS"
        " 'BEGIN IF n = 0 THEN RAISE EXCEPTION ''none''; END IF; RETURN n; END'"
    )
    reader = Reader(
        dsn,
        f"SELECT id, {document} FROM public.items,"
        " LATERAL (VALUES (CASE n WHEN 0 THEN 100000 ELSE 1 END)) AS d (deep) WHERE id = ANY(%(ids)s)",
    )
    with pytest.raises(EnrichDataError) as refused:
        await reader.read(1, -3)
    assert isinstance(refused.value.__cause__, psycopg.Error)
    assert refused.value.__cause__.sqlstate == state
    assert set(await reader.read(1, 2)) == {1, 2}
    await reader.pool.close()


async def test_a_query_that_takes_too_long_may_do_with_fewer_ids(dsn: str, conn: Conn) -> None:
    conn.execute(f"ALTER ROLE CURRENT_USER IN DATABASE {conn.info.dbname} SET statement_timeout = '400ms'")
    slow = Reader(
        dsn,
        "SELECT id, to_json(n) FROM public.items, pg_sleep(CASE WHEN id > 0 THEN 0.3 END) "
        "WHERE id = ANY(%(ids)s)",
    )
    with pytest.raises(EnrichTimeout, match="statement timeout"):
        await slow.read(1, 2)
    assert await slow.read(1) == {1: b"10"}
    await slow.pool.close()


async def test_a_query_without_a_document_for_a_row_is_an_error_of_that_row(dsn: str) -> None:
    reader = Reader(
        dsn, "SELECT id, CASE WHEN n > 0 THEN to_json(n) END FROM public.items WHERE id = ANY(%(ids)s)"
    )
    with pytest.raises(EnrichDataError, match="id -3"):
        await reader.read(1, -3)
    assert await reader.read(1) == {1: b"10"}
    await reader.pool.close()


async def test_a_parallel_plan_may_give_the_rows_in_any_order(dsn: str, conn: Conn) -> None:
    conn.execute("INSERT INTO public.items SELECT n, 'c', n FROM generate_series(10, 200000) AS n")
    conn.execute("ANALYZE public.items")
    for setting in ("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_table_scan_size"):
        conn.execute(f"ALTER ROLE postgres IN DATABASE {conn.info.dbname} SET {setting} = 0")
    # No index fits, so the plan is a Parallel Append, whose parts come as they are ready.
    reader = Reader(dsn, "SELECT id, to_json(n) FROM public.items WHERE id + 0 = ANY(%(ids)s)")
    assert len(await reader.read(*range(10, 1000))) == 990
    await reader.pool.close()


async def test_rows_that_a_policy_hides_are_an_error_and_no_deletes(dsn: str, conn: Conn) -> None:
    with roles(dsn, "a_reader"):
        conn.execute("GRANT USAGE ON SCHEMA tube TO a_reader")
        conn.execute("GRANT SELECT ON tube_registry, tube_attachment, public.items TO a_reader")
        conn.execute("ALTER TABLE public.items ENABLE ROW LEVEL SECURITY")
        reader = Reader(as_role(dsn, "a_reader"))
        with pytest.raises(EnrichFailed, match='row-level security .* run: ALTER ROLE "a_reader" BYPASSRLS'):
            await reader.read(1)
        await reader.pool.close()


async def test_a_missing_right_is_told_with_the_statement_that_grants_it(dsn: str, conn: Conn) -> None:
    """What it says is run as it stands, until the rows can be read."""
    conn.execute('CREATE SCHEMA "My Shop"')
    conn.execute('CREATE TABLE "My Shop"."Kinds" (kind text)')
    conn.execute('INSERT INTO "My Shop"."Kinds" SELECT \'a\'')
    conn.execute("CREATE FUNCTION public.shown(text) RETURNS text LANGUAGE sql RETURN upper($1)")
    conn.execute("REVOKE EXECUTE ON FUNCTION public.shown FROM PUBLIC")
    query = """
        SELECT i.id, to_json(public.shown(k.kind)) FROM public.items i JOIN "My Shop"."Kinds" k USING (kind)
        WHERE i.id = ANY (%(ids)s)
    """
    said = []
    with roles(dsn, "ö_reader") as admin:
        admin.execute('GRANT USAGE ON SCHEMA tube TO "ö_reader"')
        conn.execute('GRANT SELECT ON tube_registry, tube_attachment TO "ö_reader"')
        reader = Reader(as_role(dsn, "ö_reader"), query)
        for _ in range(4):
            with pytest.raises(EnrichFailed, match="; as the owner, run: GRANT ") as caught:
                await reader.read(1)
            said.append(str(caught.value).partition("run: ")[2])
            admin.execute(said[-1].encode())
        assert await reader.read(1) == {1: b'"A"'}
        assert set(said) == {
            'GRANT USAGE ON SCHEMA "My Shop" TO "ö_reader"',
            'GRANT SELECT ON public.items TO "ö_reader"',
            'GRANT SELECT ON "My Shop"."Kinds" TO "ö_reader"',
            'GRANT EXECUTE ON FUNCTION public.shown(text) TO "ö_reader"',
        }
        await reader.pool.close()


async def test_no_grant_on_another_table_or_function_of_the_name_is_told(dsn: str, conn: Conn) -> None:
    """Postgres says only the name of what it refuses, and others may have it, which are nobody's business."""
    conn.execute("CREATE TABLE public.staff AS SELECT 1 AS id")
    conn.execute("CREATE SCHEMA hidden; CREATE TABLE hidden.staff (pay text)")
    conn.execute("CREATE FUNCTION public.shown(text) RETURNS text LANGUAGE sql RETURN upper($1)")
    conn.execute("CREATE FUNCTION public.shown(bigint) RETURNS text LANGUAGE sql RETURN $1::text")
    conn.execute("REVOKE EXECUTE ON FUNCTION public.shown(text), public.shown(bigint) FROM PUBLIC")
    query = "SELECT id, to_json(public.shown(id)) FROM public.staff WHERE id = ANY (%(ids)s)"
    with roles(dsn, "a_reader") as admin:
        admin.execute("GRANT USAGE ON SCHEMA tube TO a_reader")
        conn.execute("GRANT SELECT ON tube_registry, tube_attachment, public.items TO a_reader")
        reader = Reader(as_role(dsn, "a_reader"), query)

        async def told() -> str:
            with pytest.raises(EnrichFailed) as caught:
                await reader.read(1)
            return str(caught.value).partition("; ")[2]

        assert await told() == "as the owner, run: GRANT SELECT ON public.staff TO a_reader"
        admin.execute("GRANT USAGE ON SCHEMA hidden TO a_reader")  # now it may be either
        assert (await told()).startswith("grant a_reader SELECT on all that the query reads")
        admin.execute("GRANT SELECT ON public.staff TO a_reader")
        assert await told() == "grant a_reader EXECUTE on the function of this name that the query calls"
        await reader.pool.close()


async def test_a_tube_that_was_made_anew_is_another_one(reader: Reader, conn: Conn) -> None:
    """It has seen as many changes as the one that is known, and is of another table."""
    assert set(await reader.read(1)) == {1}
    conn.execute("SELECT tube_ensure_absent('t')")
    conn.execute("CREATE TABLE public.others AS SELECT 1 AS id, 'other' AS name")
    conn.execute("SELECT tube_ensure_exists('t', 1)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.others', 5)")
    assert await reader.read(1) == {1: b'{"id":1,"name":"other"}'}


UUIDS = [f"00000000-0000-4000-8000-00000000000{n}" for n in (1, 2, 3)]
TEXTS = ["a", 'B "b" \\', "c,{}"]


@pytest.fixture(params=["uuid", "text"])
def names(request: pytest.FixtureRequest, conn: Conn) -> list[str]:
    """A tube of keys of that type, of which the last is outside of its predicate."""
    ids = UUIDS if request.param == "uuid" else TEXTS
    conn.execute(f"CREATE TABLE public.named (id {request.param} PRIMARY KEY, n int)")
    for n, key in enumerate(ids):
        conn.execute(f"INSERT INTO public.named VALUES (%s::{request.param}, %s)", (key, n))
    conn.execute("SELECT tube_ensure_absent('t')")
    conn.execute("SELECT tube_ensure_exists('t', 1, 'n < 2', %s::regtype)", (request.param,))
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.named', 5)")
    return ids


async def test_keys_that_are_no_numbers(reader: Reader, names: list[str]) -> None:
    assert set(await reader.read(*names, UUIDS[0][:-1] + "9")) == set(names[:2])
    assert set(await reader.read(names[1])) == {names[1]}


async def test_ids_that_are_none_of_the_tube_are_refused(reader: Reader, names: list[str]) -> None:
    """A term of an earlier tube of that name is over as soon as it asks the database."""
    del names
    with pytest.raises(EnrichFailed, match="keeps changing"):
        await reader.read(7)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, to_json(n) FROM public.named WHERE id = ANY (%(ids)s)",
        "SELECT upper(id::text), to_json(n) FROM public.named WHERE id = ANY (%(ids)s)",
        "SELECT NULL, '0' UNION ALL SELECT id::text, to_json(n) FROM public.named",
    ],
)
async def test_a_query_of_ones_own_for_such_keys(dsn: str, names: list[str], query: str) -> None:
    """What it calls a uuid in other ways is that uuid; texts count as they are."""
    reader = Reader(dsn, query)
    there = names[:2]
    if "upper" in query and names == TEXTS:
        there = []
    assert await reader.read(*names) == {key: b"%d" % names.index(key) for key in there}
    await reader.pool.close()


@pytest.mark.parametrize(
    "query", [None, """SELECT id, row_to_json(i) FROM public."5%%s" AS i WHERE id = ANY(%(ids)s)"""]
)
async def test_a_percent_sign_in_the_name_of_a_table(dsn: str, conn: Conn, query: str | None) -> None:
    conn.execute(b'ALTER TABLE public.items RENAME TO "5%s"')
    conn.execute("SELECT tube_ensure_exists('t', 1, 'n < 15')")
    reader = Reader(dsn, query)
    try:
        assert (await reader.read(1, 2)).keys() == {1}
        assert await _walked(dsn) == [-3, 1]
    finally:
        await reader.pool.close()


async def test_also_where_the_key_has_several_columns(dsn: str, conn: Conn) -> None:
    conn.execute("SELECT tube_drop('t', force => true)")
    conn.execute("SELECT tube_ensure_exists('t', 1, key_type => 'text')")
    conn.execute("CREATE TYPE public.kind AS ENUM ('a', 'b')")
    conn.execute(b'CREATE TABLE public."5%s" (kind public.kind, id bigint, PRIMARY KEY (kind, id))')
    conn.execute("""SELECT tube_table_ensure_attached('t', 'public."5%s"', 5, key_cols => '{kind,id}')""")
    conn.execute(b"""INSERT INTO public."5%s" VALUES ('a', 1), ('b', 2)""")
    reader = Reader(dsn)
    try:
        assert await reader.read('["b", 2]', '["a", 2]') == {'["b", 2]': b'{"kind":"b","id":2}'}
        assert await _walked(dsn) == ['["a", 1]', '["b", 2]']
    finally:
        await reader.pool.close()


async def _walked(dsn: str) -> list[Id]:
    """The first ids of the root table of the tube."""
    connection = await psycopg.AsyncConnection.connect(dsn, options="-c search_path=tube,public")
    async with connection:
        roots = await load_roots(connection, "t")
        cursor = await connection.execute(ids_statement(roots, roots.tables[0], first=True), {"limit": 9})
        return [key for (key,) in await cursor.fetchall()]


async def test_each_key_of_several_columns_is_looked_up(dsn: str, conn: Conn) -> None:
    """No plan reads the table for some keys, or sorts or hashes it, whatever was estimated."""
    conn.execute("SELECT tube_drop('t', force => true)")
    conn.execute("SELECT tube_ensure_exists('t', 1, key_type => 'text')")
    conn.execute("CREATE TABLE public.docs (tenant bigint, id bigint, PRIMARY KEY (tenant, id))")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.docs', 5, key_cols => '{tenant,id}')")
    conn.execute("INSERT INTO public.docs SELECT n % 10, n FROM generate_series(1, 3000) n")
    conn.execute("ANALYZE public.docs")
    connection = await psycopg.AsyncConnection.connect(dsn, options="-c search_path=tube,public")
    async with connection:
        roots = await load_roots(connection, "t")
        (root,) = roots.tables
        statement = b"EXPLAIN " + statement_for(roots, root, EnrichConfig())
        for count in (1, 10, 100, 1000):
            keys = [f"[{n % 10}, {n}]" for n in range(count)]
            cursor = await connection.execute(statement, arguments_of("t", roots.keys, root, keys, 5))
            plan = "\n".join(line for (line,) in await cursor.fetchall())
            assert "Index Cond: ((tenant = k." in plan, plan
            assert "Join" not in plan, plan
            assert "Seq Scan on docs" not in plan, plan
