"""By which column a table is attached: one that an index proves unique, and what is said where none does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.capture import Conn, make_tube, open_session, scalar

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

PRIMARY = "it is the primary key"
UNIQUE = "it is unique and NOT NULL"
NULLABLE = "it is unique, but may be NULL"
NOTHING = "no index proves that it is unique"
LEADS = (
    "it leads the primary key (id, at), the rest of which distinguishes partitions; "
    "no index proves that it is unique in all of them"
)


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    with open_session(any_dsn) as conn:
        yield conn


CASES = {
    "id is the primary key": ("(id int PRIMARY KEY)", ("id", True, True, PRIMARY)),
    "deferred": ("(id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)", ("id", True, True, PRIMARY)),
    "with more columns in the index": (
        "(id int, n int, PRIMARY KEY (id) INCLUDE (n))",
        ("id", True, True, PRIMARY),
    ),
    "unique": ("(pk int PRIMARY KEY, id int NOT NULL UNIQUE)", ("id", True, True, UNIQUE)),
    "unique, but may be NULL": ("(pk int PRIMARY KEY, id int UNIQUE)", ("pk", True, True, PRIMARY)),
    "no key but another": ("(pk int PRIMARY KEY, id int)", ("pk", True, True, PRIMARY)),
    "no id": ("(pk int PRIMARY KEY, n int NOT NULL UNIQUE)", ("pk", True, True, PRIMARY)),
    "no key": ("(id int NOT NULL)", ("id", False, False, NOTHING)),
    "a nullable one alone": ("(id int UNIQUE)", ("id", False, True, NULLABLE)),
    "leads a key": ("(id int, n int, PRIMARY KEY (id, n))", ("id", False, False, NOTHING)),
    "no id and no key": ("(a int, b int, PRIMARY KEY (a, b))", None),
    "partitioned": (
        "(id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
        ("id", True, False, LEADS),
    ),
    "partitioned by itself": ("(id int PRIMARY KEY) PARTITION BY HASH (id)", ("id", True, True, PRIMARY)),
    "partitioned, with one more": (
        "(id int, n int, at int, PRIMARY KEY (id, n, at)) PARTITION BY RANGE (at)",
        ("id", False, False, NOTHING),
    ),
    "partitioned, not leading": (
        "(id int, at int, PRIMARY KEY (at, id)) PARTITION BY RANGE (at)",
        ("id", False, False, NOTHING),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_column(db: Conn, case: str) -> None:
    definition, expected = CASES[case]
    db.execute(f"CREATE TABLE public.t {definition}".encode())
    assert db.execute("SELECT * FROM tube_id_column('public.t')").fetchone() == expected


@pytest.mark.parametrize(
    "index",
    [
        "CREATE UNIQUE INDEX ON public.t (id) WHERE n > 0",
        "CREATE UNIQUE INDEX ON public.t ((id + 0))",
        "CREATE UNIQUE INDEX ON public.t (id, n)",
        "CREATE INDEX ON public.t (id)",
    ],
)
def test_what_proves_nothing(db: Conn, index: str) -> None:
    db.execute("CREATE TABLE public.t (id int NOT NULL, n int)")
    db.execute(index.encode())
    assert scalar(db, "SELECT reason FROM tube_id_column('public.t')") == NOTHING


def test_an_index_that_is_not_valid_proves_nothing(db: Conn) -> None:
    db.execute("CREATE TABLE public.t (id int NOT NULL UNIQUE)")
    db.execute("UPDATE pg_index SET indisvalid = false WHERE indrelid = 'public.t'::regclass")
    assert scalar(db, "SELECT reason FROM tube_id_column('public.t')") == NOTHING


def test_parts_that_are_partitioned_themselves(db: Conn) -> None:
    db.execute(
        "CREATE TABLE public.t (id int, at int, no int, PRIMARY KEY (id, at, no)) PARTITION BY RANGE (at)"
    )
    assert scalar(db, "SELECT is_key FROM tube_id_column('public.t')") is False
    db.execute(
        "CREATE TABLE public.p (no int NOT NULL, at int NOT NULL, id int NOT NULL) PARTITION BY LIST (no)"
    )
    db.execute("ALTER TABLE public.t ATTACH PARTITION public.p DEFAULT")
    assert scalar(db, "SELECT is_key FROM tube_id_column('public.t')") is True


def test_a_column_that_is_asked_about(db: Conn) -> None:
    db.execute('CREATE TABLE public.t (id int PRIMARY KEY, n int, "Odd one" int NOT NULL UNIQUE)')
    db.execute("CREATE VIEW public.v AS TABLE public.t")
    asked = "SELECT name, reason FROM tube_id_column(%s, %s)"
    for table, column, expected in (
        ("t", "id", ("id", PRIMARY)),
        ("t", "n", ("n", NOTHING)),
        ("t", "Odd one", ("Odd one", UNIQUE)),
        ("t", "none", None),
        ("t", "ctid", None),
        ("v", "id", None),
    ):
        assert db.execute(asked, (table, column)).fetchone() == expected


def test_sql_takes_id_and_warns(db: Conn) -> None:
    """As callers of pg-tube expect, who name no column."""
    said: list[tuple[str | None, str | None]] = []
    db.add_notice_handler(lambda notice: said.append((notice.severity, notice.message_primary)))
    make_tube(db)
    db.execute("CREATE TABLE public.t (pk int PRIMARY KEY, id int NOT NULL)")
    for _ in range(2):
        db.execute("SELECT tube_table_ensure_attached('es-live', 'public.t', 0)")
    assert scalar(db, "SELECT id_col FROM tube_list()") == "id"
    assert said == [("WARNING", "nothing proves that the key id of public.t is unique")]
    db.execute("SELECT tube_table_ensure_detached('es-live', 'public.t')")
    db.execute("SELECT tube_table_ensure_attached('es-live', 'public.t', 0, id_col => 'id')")
    db.execute("CREATE TABLE public.parts (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)")
    db.execute("SELECT tube_table_ensure_attached('es-live', 'public.parts', 1)")
    assert len(said) == 1, (
        "a column that is named, or leads the key of a partitioned table, is taken as it is"
    )
