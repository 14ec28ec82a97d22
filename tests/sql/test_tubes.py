"""Tubes: their names, partitions and epochs, what is listed of them, and their end."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.helpers.capture import (
    TABLE,
    TUBE,
    Conn,
    attach,
    make_item,
    make_tube,
    open_session,
    refusal,
    scalar,
    take,
)
from tests.helpers.terms import Claim, acquire, mark, park, park_item

STRANGE_NAMES = [
    "es-live",
    "Upper Case",
    "it's",
    'a "quoted" one',
    "per%cent",
    "back\\slash",
    "semi;colon",
    "dollar$$quote",
    "tagged$body$quote",
    "tagged$ddl$quote",
    "<queue>",
    "x" * 57,
    "é" * 28,
    "select",
    "new_table",
]


@pytest.fixture
def db(any_dsn: str) -> Iterator[Conn]:
    """A session on each version."""
    with open_session(any_dsn) as conn:
        yield conn


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_names_work_everywhere(conn: Conn, name: str) -> None:
    make_item(conn)
    make_tube(conn, name, 2, "id > 0")
    attach(conn, tube=name)
    conn.execute(f"INSERT INTO {TABLE} VALUES (1), (-1)")
    conn.execute(f"UPDATE {TABLE} SET value = 'x'")
    assert take(conn, name) == [("I", 0, 1), ("U", 0, 1)]
    conn.execute("SELECT public.item_touch('{5}')")
    assert [row[1] for row in conn.execute("SELECT partition, inc_count FROM tube_stats()")] == ["1", "0"]
    query = scalar(conn, "SELECT tube_pods_sql(%s, 2, 0)", (name,))
    (pod,) = conn.execute(query.encode()).fetchall()
    assert pod[1:] == ("T", 0, "{5}", None)
    assert scalar(conn, "SELECT tube_pods_delete(%s, 2, 0, %s)", (name, [pod[0]])) == 1
    conn.execute(scalar(conn, "SELECT tube_index_sql(%s, 3)", (name,)).encode())
    make_tube(conn, name, 3)
    conn.execute("SELECT tube_ensure_absent(%s)", (name,))
    conn.execute(f"INSERT INTO {TABLE} VALUES (2)")
    assert scalar(conn, "SELECT count(*) FROM tube_list()") == 0


NO_NAMES: list[str | None] = [
    "",
    None,
    "x" * 58,
    "é" * 29,
    "a,b",
    "a\nb",
    "a\x7fb",
    "a\u0085b",
    "tube_registry",
    "tube_seq",
    "pg_class",
]


def test_names_that_are_refused(conn: Conn) -> None:
    for name in NO_NAMES:
        with refusal("TU101", name) as error:
            conn.execute("SELECT tube_ensure_exists(%s)", (name,))
        assert error.value.diag.message_hint, name
        assert scalar(conn, "SELECT count(*) FROM tube_registry") == 0, name


@pytest.mark.parametrize("partitions", [0, -1, 1025, None])
def test_numbers_of_partitions_that_are_refused(conn: Conn, partitions: int | None) -> None:
    make_tube(conn, partitions=4)
    for tube in (TUBE, "new"):
        with pytest.raises(psycopg.Error) as refused:
            conn.execute("SELECT tube_ensure_exists(%s, %s)", (tube, partitions))
        assert refused.value.sqlstate == "TU103"
    assert conn.execute("SELECT tube, partitions FROM tube_registry").fetchall() == [(TUBE, 4)]


def test_the_table_of_a_tube(db: Conn) -> None:
    make_tube(db)
    columns = db.execute(
        "SELECT attname::text, atttypid::regtype::text, attnotnull, attstorage FROM pg_attribute"
        " WHERE attrelid = 'tube.\"es-live\"'::regclass AND attnum > 0 ORDER BY attnum"
    ).fetchall()
    assert columns == [
        ("seq", "bigint", True, "p"),
        ("op", "character", True, "x"),
        ("shard", "tube_shard", True, "p"),
        ("ids", "bigint[]", True, "e"),
        ("payload", "jsonb", False, "x"),
        ("ts", "timestamp with time zone", True, "p"),
        ("leader_id", "uuid", False, "p"),
    ]
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("INSERT INTO tube.\"es-live\" (op, shard, ids) VALUES ('U', -1, '{1}')")


def test_ensured_again_nothing_happens(db: Conn) -> None:
    make_tube(db, predicate="id > 0")
    before = db.execute("SELECT * FROM tube_registry, tube_leader").fetchall()
    with db.transaction():
        make_tube(db)
        make_tube(db, predicate="id > 0")
        assert scalar(db, "SELECT pg_current_xact_id_if_assigned()") is None
    assert db.execute("SELECT * FROM tube_registry, tube_leader").fetchall() == before


def test_repartition_ends_every_term(db: Conn) -> None:
    make_tube(db, partitions=2)
    term = acquire(db, Claim(TUBE, 2, 1))
    db.execute(
        "INSERT INTO tube.\"es-live\" (op, shard, ids) SELECT 'U', g, '{1}' FROM generate_series(0, 9) g"
    )
    make_tube(db, partitions=5)
    assert db.execute("SELECT partitions, generation FROM tube_registry").fetchall() == [(5, 2)]
    leaders = db.execute(
        "SELECT partition, partitions, leader_id, epoch FROM tube_leader ORDER BY 1"
    ).fetchall()
    assert leaders == [(n, 5, None, term.epoch + 1) for n in range(5)]
    assert db.execute(
        "SELECT leader_id, partitions, partition, epoch, outcome FROM tube_term"
    ).fetchall() == [(term.leader_id, 2, 1, term.epoch, "repartitioned")]
    with pytest.raises(psycopg.Error) as fenced:
        mark(db, term)
    assert fenced.value.sqlstate == "TU002"
    renewed = acquire(db, Claim(TUBE, 5, 3))
    assert [pod.shard for pod in mark(db, renewed)] == [3, 8]


def test_repartition_swaps_the_index(db: Conn) -> None:
    def indexes() -> list[str]:
        return [
            row[0]
            for row in db.execute(
                "SELECT indexrelid::regclass::text FROM pg_index"
                " WHERE indrelid = 'tube.\"es-live\"'::regclass AND indisvalid AND indpred IS NULL"
            )
        ]

    make_tube(db, partitions=2)
    (old,) = indexes()
    assert scalar(db, "SELECT tube_index_sql(%s, 2)", (TUBE,)) is None
    build = scalar(db, "SELECT tube_index_sql(%s, 3)", (TUBE,))
    assert build.startswith("CREATE INDEX CONCURRENTLY ")
    db.execute(build.encode())
    assert scalar(db, "SELECT tube_index_sql(%s, 3)", (TUBE,)) is None
    (new,) = set(indexes()) - {old}
    oid = scalar(db, "SELECT %s::regclass::oid", (new,))
    make_tube(db, partitions=3)
    assert indexes() == [new]
    assert scalar(db, "SELECT %s::regclass::oid", (new,)) == oid, "the index built before is used"
    make_tube(db, partitions=2)
    assert indexes() == [old]


def test_an_index_that_another_session_has_dropped_meanwhile(conn: Conn) -> None:
    make_tube(conn, partitions=2)
    conn.execute(scalar(conn, "SELECT tube_index_sql(%s, 3)", (TUBE,)).encode())
    drop = scalar(conn, "SELECT tube_index_sql(%s, 2)", (TUBE,))
    assert drop.startswith("DROP INDEX CONCURRENTLY ")
    conn.execute(drop.encode())
    conn.execute(drop.encode())
    assert scalar(conn, "SELECT tube_index_sql(%s, 2)", (TUBE,)) is None


def test_an_index_left_over_by_a_build_that_failed(conn: Conn) -> None:
    make_tube(conn, partitions=2)
    conn.execute(scalar(conn, "SELECT tube_index_sql(%s, 3)", (TUBE,)).encode())
    conn.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text LIKE '%\\_p3\\_idx\"'"
    )
    mend = scalar(conn, "SELECT tube_index_sql(%s, 3)", (TUBE,))
    assert mend.startswith("REINDEX INDEX CONCURRENTLY ")
    conn.execute(mend.encode())
    assert scalar(conn, "SELECT tube_index_sql(%s, 3)", (TUBE,)) is None
    conn.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text LIKE '%\\_p3\\_idx\"'"
    )
    make_tube(conn, partitions=3)
    valid = conn.execute(
        "SELECT indisvalid FROM pg_index WHERE indrelid = 'tube.\"es-live\"'::regclass"
    ).fetchall()
    assert valid == [(True,), (True,)]


def test_the_index_of_an_unknown_tube(conn: Conn) -> None:
    with pytest.raises(psycopg.Error) as refused:
        conn.execute("SELECT tube_index_sql('nope', 3)")
    assert refused.value.sqlstate == "TU102"


def test_epochs_go_on_in_a_tube_made_anew(db: Conn) -> None:
    make_tube(db, partitions=1)
    first = acquire(db, Claim(TUBE, 1, 0))
    db.execute("SELECT tube_ensure_absent(%s)", (TUBE,))
    db.execute("SELECT tube_ensure_absent(%s)", (TUBE,))
    assert db.execute("SELECT leader_id, outcome FROM tube_term").fetchall() == [
        (first.leader_id, "superseded")
    ]
    make_tube(db, partitions=1)
    assert scalar(db, "SELECT tube_leader_epoch(%s, 1, 0)", (TUBE,)) == first.epoch
    second = acquire(db, Claim(TUBE, 1, 0))
    assert second.epoch > first.epoch
    wait = scalar(db, "SELECT tube_leader_wait(%s, %s, %s, %s)", second.args)
    assert wait.total_seconds() > 0, "the dropped tube's leader may still be writing"


def test_absent_takes_everything_away(db: Conn) -> None:
    before = scalar(db, "SELECT count(*) FROM pg_proc") + scalar(db, "SELECT count(*) FROM pg_class")
    make_tube(db, predicate="id > 0")
    make_item(db)
    attach(db)
    make_item(db, "public.other")
    attach(db, "public.other", 1, 8)
    db.execute("SELECT tube_ensure_absent(%s)", (TUBE,))
    db.execute("DROP TABLE public.item, public.other")
    after = scalar(db, "SELECT count(*) FROM pg_proc") + scalar(db, "SELECT count(*) FROM pg_class")
    assert after == before


def test_drop_of_a_tube_that_is_not_there(db: Conn) -> None:
    make_tube(db)
    with pytest.raises(psycopg.Error) as refused:
        db.execute("SELECT tube_drop('nope', true)")
    assert refused.value.sqlstate == "TU102"
    assert refused.value.diag.message_hint == f"There are: '{TUBE}'."


def test_drop_refuses_what_would_be_lost(db: Conn) -> None:
    make_tube(db, partitions=1)
    make_item(db)
    attach(db)
    db.execute(f"INSERT INTO {TABLE} SELECT generate_series(1, 600)")
    term = acquire(db, Claim(TUBE, 1, 0))
    refused = f"tube '{TUBE}' is not dropped: "
    park(db, term, park_item(1), park_item(2))
    for undo, said in (
        (
            "SELECT tube_table_ensure_detached(NULL, 'public.item')",
            "attached tables: 1; pods that wait: 3; ids in them: 600; parked documents: 2",
        ),
        (f'DELETE FROM "{TUBE}"', "pods that wait: 3; ids in them: 600; parked documents: 2"),
        (f"SELECT tube_park_drop('{TUBE}')", "parked documents: 2"),
    ):
        for force in (False, None):
            with pytest.raises(psycopg.Error, match=refused + said) as caught:
                db.execute("SELECT tube_drop(%s, %s)", (TUBE, force))
            assert caught.value.sqlstate == "TU109"
        db.execute(undo)
    assert scalar(db, "SELECT leader_id FROM tube_leader") == term.leader_id, "its term goes on"
    db.execute("SELECT tube_drop(%s)", (TUBE,))
    assert scalar(db, "SELECT count(*) FROM tube_list()") == 0


def test_drop_counts_no_more_than_it_has_to(db: Conn) -> None:
    make_tube(db)
    db.execute(
        f"INSERT INTO \"{TUBE}\" (op, shard, ids) SELECT 'T', 1, '{{1,2}}' FROM generate_series(1, 10001)"
    )
    with pytest.raises(psycopg.Error, match="pods that wait: at least 10000; ids in them: at least 20000"):
        db.execute("SELECT tube_drop(%s)", (TUBE,))
    db.execute("SELECT tube_drop(%s, force => true)", (TUBE,))
    assert scalar(db, "SELECT count(*) FROM tube_list()") == 0
