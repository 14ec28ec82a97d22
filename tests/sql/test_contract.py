"""The public API as callers of pg-tube know it: each call of theirs does the same here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.errors import Diagnostic

from tests.helpers.capture import Conn, open_session, scalar, triggers
from tests.helpers.database import TestServer, copy
from tests.helpers.roles import as_role, roles

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

TUBE = "es-live"
TABLE = "sh0042.item"
STATS = (
    "tube text, predicate text, partition integer, shards integer, inc_count text, inc_min_seq bigint,"
    " inc_max_seq bigint, inc_min_ts timestamptz, inc_max_ts timestamptz, backfill_count text,"
    " backfill_min_seq bigint, backfill_max_seq bigint, backfill_min_ts timestamptz,"
    " backfill_max_ts timestamptz, control_count text"
)
LIST = "tube text, predicate text, partitions integer, tbl regclass, shard integer"
ALIASES = {"timestamptz": "timestamp with time zone", "char": "character"}


@dataclass(frozen=True)
class Function:
    """One of the contract: its arguments as declared, an example of each, and what it returns."""

    name: str
    arguments: str
    values: tuple[str, ...] = ()
    result: str = "void"

    def declared(self) -> list[tuple[str, str, str | None]]:
        """Name, type and default of each argument."""
        found = []
        for argument in filter(None, self.arguments.split(", ")):
            head, _, default = argument.partition(" = ")
            name, _, type_name = head.partition(" ")
            found.append((name, ALIASES.get(type_name, type_name), default or None))
        return found

    @property
    def required(self) -> int:
        """How many arguments have no default."""
        return sum(default is None for _, _, default in self.declared())

    def columns(self) -> list[tuple[str, str]]:
        """Name and type of each column of the result."""
        if " " not in self.result:
            return [(self.name, self.result)]
        pairs = (column.split(" ") for column in self.result.split(", "))
        return [(name, ALIASES.get(type_name, type_name)) for name, type_name in pairs]


FUNCTIONS = [
    Function(
        "tube_ensure_exists",
        "tube text, partitions integer = 1, predicate text = NULL",
        ("'other'", "3", "'id > 0'"),
    ),
    Function("tube_ensure_absent", "in_tube text", ("'es-live'",)),
    Function(
        "tube_table_ensure_attached",
        "tube text, tbl regclass, shard integer = NULL",
        ("'spare'", "'sh0042.item'", "7"),
    ),
    Function("tube_table_ensure_detached", "in_tube text, in_tbl regclass", ("NULL", "'sh0042.item'")),
    Function("tube_list", "in_tbl regclass = NULL", ("'sh0042.item'",), LIST),
    Function("tube_stats", "", (), STATS),
    Function(
        "tube_pods_sql",
        "tube text, partitions integer, partition integer, exclude_backfill boolean = false",
        ("'es-live'", "2", "0", "true"),
        "text",
    ),
    Function(
        "tube_pods_delete",
        "tube text, partitions integer, partition integer, seqs bigint[]",
        ("'es-live'", "2", "0", "'{1,2}'"),
        "integer",
    ),
    Function(
        "tube_pods_insert",
        "tube_or_tubes text, query text, shard integer, op char = 'B', approx_size bigint = NULL,"
        " fetch_chunk_size integer = 20000, insert_chunk_size integer = 250",
        ("'es-live,spare'", "'SELECT id, row_number() OVER () FROM sh0042.item'", "42", "'T'", "3", "2", "1"),
    ),
    Function(
        "tube_backfill_schedule",
        "in_tube text, order_col text, shard_from integer, shard_to integer",
        ("'es-live'", "'created_at'", "0", "99"),
        "integer",
    ),
    Function("tube_backfill_step1", "", (), "text"),
    Function("tube_backfill_step2", "timeout interval = '60 seconds'", ("'1 minute'",)),
    Function(
        "tube_backfill_step3",
        "step1 text, tube text, tbl regclass, order_col text, shard integer = NULL,"
        " fetch_chunk_size integer = 20000, insert_chunk_size integer = 250",
        ("tube_backfill_step1()", "'es-live'", "'sh0042.item'", "'created_at'", "42", "2", "1"),
    ),
    Function(
        "es-live_touch",
        "shard integer, ids bigint[], op char, payload jsonb = NULL, chunk_size integer = 250",
        ("42", "'{1,2}'", "'T'", "'{}'", "1"),
    ),
    Function(
        "item_touch",
        "ids bigint[], op char = 'T', payload jsonb = NULL, chunk_size integer = 250",
        ("'{1,2}'", "'U'", "'{}'", "1"),
    ),
]


def microshard(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE SCHEMA sh0042")
        conn.execute(f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, created_at timestamptz DEFAULT now())")
        conn.execute(f"INSERT INTO {TABLE} VALUES (1), (2), (3)")
        conn.execute("SELECT tube_ensure_exists('es-live', 2), tube_ensure_exists('spare')")
        conn.execute("SELECT tube_table_ensure_attached('es-live', 'sh0042.item')")


@pytest.fixture(params=["installed", "restored"])
def of_db(any_server: TestServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """The DSN of `db`."""

    def restored(dsn: str) -> None:
        with any_server.database(installed=True, prepare=microshard) as source:
            copy(any_server.postgres, source, dsn)

    made = request.param == "installed"
    with any_server.database(installed=made, prepare=microshard if made else restored) as dsn:
        yield dsn


@pytest.fixture
def db(of_db: str) -> Iterator[Conn]:
    """Two tubes; the table of a microshard, attached to one of them. As made, or as restored from a dump."""
    with open_session(of_db) as conn:
        conn.execute("SET search_path = tube, sh0042, public")
        yield conn


def test_all_is_declared_as_before_and_new_arguments_come_last(db: Conn) -> None:
    for function in FUNCTIONS:
        (found,) = db.execute(
            "SELECT pg_get_function_arguments(p.oid) FROM pg_proc AS p"
            " WHERE p.proname = %s AND p.pronamespace IN ('tube'::regnamespace, 'sh0042'::regnamespace)",
            (function.name,),
        ).fetchall()  # one: another of that name could make a call ambiguous
        arguments = [_argument(text) for text in found[0].split(", ") if text]
        declared = function.declared()
        assert arguments[: len(declared)] == declared
        assert all(default is not None for _, _, default in arguments[len(declared) :]), function.name


def _argument(text: str) -> tuple[str, str, str | None]:
    """Name, type and default of an argument as Postgres writes it."""
    head, _, default = text.partition(" DEFAULT ")
    name, _, type_name = head.partition(" ")
    default = re.sub(r"::[\w ]+(\[\])?$", "", default).replace("'00:01:00'", "'60 seconds'")
    return name, type_name, default or None


def test_all_is_called_by_position_and_by_name(db: Conn) -> None:
    for function in FUNCTIONS:
        names = [name for name, _, _ in function.declared()]
        expected = [(name, _oid(db, type_name)) for name, type_name in function.columns()]
        for count in range(function.required, len(names) + 1):
            values = function.values[:count]
            by_name = [f"{name} => {value}" for name, value in zip(names, values, strict=False)]
            for arguments in (values, tuple(by_name), tuple(reversed(by_name))):
                call = f'"{function.name}"({", ".join(arguments)})'
                assert _columns(db, call)[: len(expected)] == expected, call


def test_all_is_called_with_arguments_whose_types_are_known(db: Conn) -> None:
    for function in FUNCTIONS:
        values = ", ".join(
            f"({value})::{type_name}"
            for (_, type_name, _), value in zip(function.declared(), function.values, strict=True)
        )
        _columns(db, f'"{function.name}"({values})')


def test_nothing_depends_on_the_search_path(db: Conn) -> None:
    db.execute("CREATE SCHEMA bad")
    db.execute("CREATE TABLE bad.tube_registry (tube text)")
    db.execute("CREATE FUNCTION bad.strpos(text, text) RETURNS int LANGUAGE sql AS 'SELECT 1/0'")
    db.execute("CREATE FUNCTION bad.eq(int, int) RETURNS bool LANGUAGE sql AS 'SELECT (1/0)::bool'")
    db.execute("CREATE OPERATOR bad.= (LEFTARG = int, RIGHTARG = int, FUNCTION = bad.eq)")
    db.execute("SET search_path = bad, pg_catalog")
    for function in FUNCTIONS:
        schema = "sh0042" if function.name == "item_touch" else "tube"
        values = ", ".join(function.values).replace("tube_backfill_step1()", "tube.tube_backfill_step1()")
        _columns(db, f'{schema}."{function.name}"({values})')


def _columns(conn: Conn, call: str) -> list[tuple[str, int]]:
    """Name and type of the columns that a call gives; what it did is rolled back."""
    with conn.transaction(force_rollback=True):
        cursor = conn.execute(f"SELECT * FROM {call}".encode())
        assert cursor.description is not None
        return [(column.name, column.type_code) for column in cursor.description]


def _oid(conn: Conn, type_name: str) -> int:
    return int(scalar(conn, "SELECT %s::regtype::oid::int", (type_name,)))


def test_the_table_of_a_tube(db: Conn) -> None:
    rows = db.execute(
        "SELECT a.attname::text, a.atttypid::regtype::text, pg_get_expr(d.adbin, d.adrelid)"
        " FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
        " WHERE a.attrelid = 'tube.\"es-live\"'::regclass AND a.attnum > 0 ORDER BY a.attnum"
    ).fetchall()
    assert [name for name, _, _ in rows] == ["seq", "op", "shard", "ids", "payload", "ts", "leader_id"]
    types = {name: type_name for name, type_name, _ in rows}
    assert types["seq"] == "bigint"
    assert types["op"] == "character"
    assert types["ids"] == "bigint[]"
    assert types["payload"] == "jsonb"
    defaults = {name: default for name, _, default in rows}
    assert "nextval('tube_seq'::regclass)" in defaults["seq"]
    assert defaults["ts"] == "clock_timestamp()"


def test_what_is_generated_has_the_names_that_it_had(db: Conn) -> None:
    names = [f"item_es-live_after_{event}_trigger" for event in ("delete", "insert", "update")]
    assert set(names) <= set(triggers(db, TABLE))
    assert scalar(db, "SELECT to_regproc('tube.\"es-live_touch\"') IS NOT NULL")
    assert scalar(db, "SELECT to_regproc('sh0042.item_touch') IS NOT NULL")


def test_a_consumer_reads_and_deletes(db: Conn) -> None:
    db.execute("SELECT \"es-live_touch\"(42, '{5,6}', 'T')")
    db.execute('SELECT "es-live_touch"(42, \'{}\', \'B\', \'{"type":"backfill_end","start_seq":"1"}\')')
    db.execute("SELECT \"es-live_touch\"(42, '{}', 'T')")
    cursor = db.execute(scalar(db, "SELECT tube_pods_sql('es-live', 2, 0)").encode())
    assert cursor.description is not None
    assert [column.name for column in cursor.description] == ["seq", "op", "shard", "ids", "payload"]
    rows = cursor.fetchall()
    assert [row[1:] for row in rows] == [
        ("T", 42, "{5,6}", None),
        ("B", 42, "{}", {"type": "backfill_end", "start_seq": "1"}),
    ]
    assert scalar(db, "SELECT tube_pods_delete('es-live', 2, 0, %s)", ([row[0] for row in rows],)) == 2


def test_another_number_of_partitions_is_refused(db: Conn) -> None:
    for call in ("tube_pods_sql('es-live', 3, 0)", "tube_pods_delete('es-live', 3, 0, '{1}')"):
        with pytest.raises(psycopg.Error) as refused:
            db.execute(f"SELECT {call}".encode())
        assert refused.value.sqlstate == "TU002"


def test_the_shard_of_a_microshard_is_in_its_schemas_name(db: Conn) -> None:
    rows = db.execute("SELECT tube, tbl::text, shard FROM tube_list() ORDER BY tube").fetchall()
    assert rows == [(TUBE, "item", 42), ("spare", None, None)]


def test_the_shards_that_are_counted(db: Conn) -> None:
    counts = "SELECT tube, partition, shards FROM tube_stats()"
    assert db.execute(counts).fetchall() == [(TUBE, 0, 1), (TUBE, 1, 0), ("spare", 0, 0)]
    for schema in ("sh0043", "sh0044"):
        db.execute(f"CREATE SCHEMA {schema}".encode())
        db.execute(f"CREATE TABLE {schema}.item (id bigint PRIMARY KEY)".encode())
        db.execute("SELECT tube_table_ensure_attached('es-live', %s)", (f"{schema}.item",))
    assert db.execute(counts).fetchall() == [(TUBE, 0, 2), (TUBE, 1, 1), ("spare", 0, 0)]


def test_control_pods_do_not_wait_as_pods_of_ids(db: Conn) -> None:
    db.execute('SELECT "es-live_touch"(42, \'{}\', \'T\', \'{"type":"backfill_start","start_seq":"1"}\')')
    db.execute('SELECT "es-live_touch"(42, \'{}\', \'B\', \'{"type":"backfill_end","start_seq":"1"}\')')
    figures = (
        "SELECT inc_count, inc_min_seq, inc_max_seq, inc_min_ts, inc_max_ts, backfill_count,"
        " backfill_min_seq, backfill_max_seq, backfill_min_ts, backfill_max_ts, control_count"
        " FROM tube_stats()"
    )
    nothing = ("0", None, None, None, None) * 2
    assert db.execute(figures).fetchall() == [
        (*nothing, "backfill_end:1 backfill_start:1"),
        (*nothing, "0"),
        (*nothing, "0"),
    ]


def read_as_keys(notice: str) -> dict[str, str]:
    """What a program of pg-tube's callers finds in a NOTICE: `key=value`, up to the two dashes."""
    words = notice.partition("--")[0].split()
    return dict(word.split("=", 1) for word in words if re.match(r"\w+=", word))


def notices(conn: Conn) -> list[str]:
    """Where the NOTICEs of the session go from here on; no warnings."""
    heard: list[str] = []

    def hear(notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "NOTICE":
            heard.append(notice.message_primary or "")

    conn.add_notice_handler(hear)
    return heard


def test_a_fan_out_says_how_many_ids_it_has_put(db: Conn) -> None:
    heard = notices(db)
    db.execute(
        "SELECT tube_pods_insert('es-live', 'SELECT g, g FROM generate_series(1, 4) AS g"
        " WHERE g <> 3 OR pg_sleep(2.1) IS NOT NULL', 42, 'T', 4, 1)"
    )
    assert [read_as_keys(notice) for notice in heard] == [
        {"insert_ids": "3", "insert_finished": "f"},
        {"insert_ids": "4", "insert_finished": "t"},
    ]
    start = scalar(db, "SELECT tube_backfill_step1()")
    db.execute("SELECT tube_backfill_step3(%s, 'es-live', 'sh0042.item', 'created_at', 42)", (start,))
    assert read_as_keys(heard[-1]) == {"insert_ids": "3", "insert_finished": "t"}


def test_step_2_says_which_transaction_it_waits_for(db: Conn, of_db: str) -> None:
    heard = notices(db)
    with open_session(of_db, application_name="slow writer") as writer, writer.transaction():
        xid = scalar(writer, "SELECT pg_current_xact_id()")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            db.execute("SELECT tube_backfill_step2('2500 ms')")
        who = f"pid {writer.info.backend_pid} of user postgres, application 'slow writer'"
    assert len(heard) == 2  # at first, and after 2 seconds
    for notice in heard:
        assert read_as_keys(notice) == {"active_tx_xid": str(xid)}
        assert who in notice
    heard.clear()
    db.execute("SELECT tube_backfill_step2()")
    assert heard == []


def test_tubes_are_listed_by_name_and_shard(db: Conn) -> None:
    for shard in (9, 3):
        db.execute(f"CREATE TABLE public.t{shard} (id bigint PRIMARY KEY)".encode())
        db.execute("SELECT tube_table_ensure_attached(%s, %s, %s)", (TUBE, f"public.t{shard}", shard))
    assert db.execute("SELECT tube, shard FROM tube_list()").fetchall() == [
        (TUBE, 3),
        (TUBE, 9),
        (TUBE, 42),
        ("spare", None),
    ]


def test_what_a_consumer_with_a_worker_of_its_own_calls(db: Conn, of_db: str) -> None:
    """A member of tube_worker does all of this: lists, reads, deletes, and runs backfills asked for."""
    db.execute("SELECT tube_backfill_schedule('es-live', 'created_at', 0, 2147483647)")
    with roles(of_db, "consumer") as admin:
        admin.execute("GRANT tube_worker TO consumer")
        admin.execute("GRANT USAGE ON SCHEMA sh0042 TO consumer")  # as any worker: it reads documents there
        admin.execute("GRANT SELECT ON sh0042.item TO consumer")
        with psycopg.connect(as_role(of_db, "consumer"), autocommit=True) as worker:
            worker.execute("SET search_path = tube")
            assert worker.execute("SELECT DISTINCT tube, partitions FROM tube_list() ORDER BY 1").fetchall()
            assert len(worker.execute("SELECT * FROM tube_stats()").fetchall()) == 3
            read = scalar(worker, "SELECT tube_pods_sql('es-live', 2, 0)").encode()
            ((schedule, _, shard, _, payload),) = worker.execute(read).fetchall()
            assert payload == {"type": "backfill_schedule", "tbl": TABLE, "order_col": "created_at"}
            start = scalar(worker, "SELECT tube_backfill_step1()")
            worker.execute("SELECT tube_backfill_step2('59000 ms')")
            worker.execute(
                "SELECT tube_backfill_step3(%s, 'es-live', %s, %s, %s)",
                (start, payload["tbl"], payload["order_col"], shard),
            )
            rows = worker.execute(read).fetchall()
            assert [(op, ids) for _, op, _, ids, _ in rows] == [
                ("T", "{}"),
                ("B", "{}"),
                ("B", "{1,2,3}"),
                ("B", "{}"),
            ]
            seqs = [seq for seq, *_ in rows]
            assert schedule in seqs
            assert scalar(worker, "SELECT tube_pods_delete('es-live', 2, 0, %s)", (seqs,)) == 4
