"""Mark, purge and reset do not depend on statistics: the same plan on an empty and on a full queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.helpers.terms import Claim, Conn, Term, acquire, fill, make_tube, marked_seqs, purge, reset, scalar
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

PODS = 40_000
CLASS = "(CASE WHEN (op = 'B'::bpchar) THEN 1 ELSE 0 END = 0)"
FEW_BUFFERS = 400
"""For ten pods: a descent of the index and a page each, in both classes, and the leader row. The
partition has more than a thousand pages."""


@pytest.fixture
def server(any_dsn: str) -> Iterator[Conn]:
    """A session to each version's server."""
    with psycopg.connect(any_dsn, autocommit=True, options="-c search_path=tube") as conn:
        yield conn


@pytest.fixture(params=["never analysed", "analysed when empty", "analysed when full", "another index"])
def term(request: pytest.FixtureRequest, server: Conn) -> Term:
    """A term over one of two partitions of a long queue, whatever the statistics, also with two indexes."""
    make_tube(server, partitions=2)
    server.execute("ALTER TABLE tube.queue SET (autovacuum_enabled = off)")
    if request.param == "another index":
        server.execute(scalar(server, "SELECT tube_index_sql('queue', 4)").encode())
    if request.param in ("analysed when empty", "another index"):
        fill(server, 1)
        server.execute("DELETE FROM tube.queue")
        # Not while somebody looks at the row that is gone: an autoanalyze, say.
        wait_until(lambda: is_analysed_when_empty(server), what="the page of the row is gone")
    fill(server, PODS, shards=2)
    if request.param == "analysed when full":
        server.execute("VACUUM ANALYZE tube.queue")
    return acquire(server, Claim(partitions=2, partition=1))


def is_analysed_when_empty(conn: Conn) -> bool:
    conn.execute("VACUUM ANALYZE tube.queue")
    return bool(scalar(conn, "SELECT relpages = 0 FROM pg_class WHERE oid = 'tube.queue'::regclass"))


def plan(
    conn: Conn, function: str, statement: str, types: str, *values: str, kept: bool = False
) -> dict[str, Any]:
    """The plan of a statement under the settings of the function that runs it.

    Args:
        conn: a session.
        function: that runs it.
        statement: its text.
        types: of its parameters.
        values: of its parameters.
        kept: whether the plan is one for any values.
    """
    with conn.transaction(force_rollback=True):
        config = scalar(conn, "SELECT proconfig FROM pg_proc WHERE proname = %s", (function,))
        for setting in config:
            name, _, value = setting.partition("=")
            conn.execute(f"SET LOCAL {name} = {value}")
        if not kept:
            conn.execute("SET LOCAL plan_cache_mode = force_custom_plan")
        conn.execute(f"PREPARE planned ({types}) AS {statement}")
        found = scalar(conn, f"EXPLAIN (FORMAT JSON) EXECUTE planned ({', '.join(values)})")
        conn.execute("DEALLOCATE planned")
    return dict(found[0]["Plan"])


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """All nodes of a plan."""
    return [plan] + [node for child in plan.get("Plans", []) for node in nodes(child)]


def scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [node for node in nodes(plan) if node.get("Relation Name") and "Scan" in node["Node Type"]]


def buffers(conn: Conn, call: str) -> int:
    """Pages that a call touched, with all that it ran."""
    found = scalar(conn, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}")
    root = found[0]["Plan"]
    return int(root["Shared Hit Blocks"]) + int(root["Shared Read Blocks"])


KEPT = {
    CLASS: "(CASE WHEN (op = 'B'::bpchar) THEN 1 ELSE 0 END = $4)",
    " = 1)": " = $5)",
    "'5'::bigint": "$2",
}
"""What stands for values in a plan that is kept."""


@pytest.mark.parametrize("kept", [False, True])
def test_a_mark_takes_pods_in_the_order_of_the_whole_index(server: Conn, term: Term, kept: bool) -> None:
    statement = scalar(server, "SELECT tube_private_mark_sql('queue', 2, %s)", [None if kept else 1])
    found = plan(
        server,
        "tube_pods_mark",
        statement.replace("in_partition", "$5"),
        "uuid, bigint, integer, integer, integer" if kept else "uuid, bigint, integer, integer",
        f"'{term.leader_id}'",
        "5",
        "1000",
        "0",
        *(["1"] if kept else []),
        kept=kept,
    )

    def said(condition: str) -> str:
        for value, parameter in KEPT.items() if kept else ():
            condition = condition.replace(value, parameter)
        return condition

    last, taken = sorted(scans(found), key=lambda node: node["Index Cond"].count("seq"))
    for scan in (last, taken):
        assert scan["Node Type"] == "Index Scan"
        assert scan["Scan Direction"] == "Forward"
        assert said("(((shard)::integer % 2) = 1)") in scan["Index Cond"]
        assert said(CLASS) in scan["Index Cond"]
        assert said("(seq > '5'::bigint)") in scan["Index Cond"]
    assert "(seq <= " in taken["Index Cond"]
    assert ("Sort Key" in str(found)) == (not kept), "only where the index may be another one"


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    "verb", ["DELETE FROM tube.queue AS pod", "UPDATE tube.queue AS pod SET leader_id = NULL"]
)
def test_pods_are_looked_up_by_the_whole_index(server: Conn, term: Term, verb: str, dense: bool) -> None:
    """Before 17, those close together in one walk over their range, those far apart one by one."""
    where = scalar(server, "SELECT tube_private_pods_where('queue', 2, 1, %s)", [dense])
    step = 1 if dense else 1000
    seqs = f"ARRAY(SELECT generate_series(1, {1000 * step}, {step}))::bigint[]"
    array = scalar(server, f"SELECT quote_literal({seqs})")
    found = plan(
        server,
        "tube_private_change_pods",
        f"{verb} WHERE {where}",
        "uuid, integer, bigint[], bigint, bigint",
        f"'{term.leader_id}'",
        "0",
        array,
        "1",
        str(1000 * step),
    )
    assert {node["Node Type"] for node in scans(found)} <= {"Index Scan", "Tid Scan"}
    (lookup,) = [node for node in scans(found) if node["Node Type"] == "Index Scan"]
    condition = lookup["Index Cond"]
    assert "(((shard)::integer % 2) = 1)" in condition
    assert CLASS in condition
    walks = dense and server.info.server_version < 170000
    assert ("(seq <= " if walks else "(seq = ") in condition
    assert ("seq" in lookup.get("Filter", "")) == walks


def test_few_pods_touch_few_pages(server: Conn, term: Term) -> None:
    call = "tube_pods_{}('queue', 2, 1, '" + str(term.leader_id) + "', {})"
    assert buffers(server, "SELECT * FROM " + call.format("mark", "10")) < FEW_BUFFERS
    seqs = [row[0] for row in server.execute("SELECT seq FROM tube.queue WHERE leader_id IS NOT NULL")]
    assert len(seqs) == 10
    array = f"'{json.dumps(seqs).replace('[', '{').replace(']', '}')}'"
    assert buffers(server, "SELECT " + call.format("reset", array)) < FEW_BUFFERS
    assert marked_seqs(server, term, limit=10) == seqs
    assert buffers(server, "SELECT " + call.format("purge", array)) < FEW_BUFFERS
    assert scalar(server, "SELECT count(*) FROM tube.queue") == PODS - 10


def updates(conn: Conn) -> tuple[int, int]:
    """Updates of the queue, and how many of them were HOT."""
    conn.execute("SELECT pg_stat_force_next_flush()")
    row = conn.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'queue'"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def test_marks_are_hot_updates(server: Conn) -> None:
    make_tube(server)
    term = acquire(server)
    fill(server, 5000)
    while seqs := marked_seqs(server, term, limit=1000):
        assert purge(server, term, seqs) == 1000
    updated, hot = updates(server)
    assert updated == 5000
    # A marked pod is longer by a uuid, so that the last ones of a page may find it full.
    assert hot / updated > 0.95


def test_most_updates_are_hot_when_pods_are_given_back_and_taken_over(server: Conn) -> None:
    make_tube(server)
    fill(server, 3000)
    for _ in range(3):
        assert len(marked_seqs(server, acquire(server), limit=3000)) == 3000
    term = acquire(server)
    assert len(marked_seqs(server, term, limit=3000)) == 3000
    assert reset(server, term) == 3000
    updated, hot = updates(server)
    assert updated == 5 * 3000
    assert hot / updated > 0.8


def planned(conn: Conn) -> dict[str, str]:
    """The functions that are generated for tubes, and whose plans are kept: their definitions."""
    return dict(
        conn.execute(
            "SELECT proname::text, pg_get_functiondef(oid) FROM pg_proc"
            " WHERE proname ~ '^tube_private_(mark|purge)_[0-9a-f]{16}$'"
        ).fetchall()
    )


def test_kept_statements_follow_the_number_of_partitions_and_go_with_the_tube(server: Conn) -> None:
    make_tube(server, partitions=2)
    assert len(planned(server)) == 2
    assert all("(shard % 2) = in_partition" in text for text in planned(server).values())
    fill(server, 30, shards=6)
    before = acquire(server, Claim(partitions=2, partition=1))
    assert len(marked_seqs(server, before, limit=2)) == 2
    server.execute("SELECT tube_ensure_exists('queue', 3)")
    assert all("(shard % 3) = in_partition" in text for text in planned(server).values())
    # By a session that has kept the plans of before.
    after = acquire(server, Claim(partitions=3, partition=1))
    seqs = marked_seqs(server, after)
    assert len(seqs) == 10
    assert purge(server, after, seqs) == 10
    server.execute("SELECT tube_ensure_absent('queue')")
    assert planned(server) == {}


@pytest.mark.parametrize("indexes", ["none", "two"])
def test_a_kept_statement_is_not_used_unless_its_index_is_there_alone(server: Conn, indexes: str) -> None:
    """As after a repartition of a long queue, where somebody has dropped the index, or prepares the next."""
    make_tube(server, partitions=2)
    fill(server, 20, shards=2)
    term = acquire(server, Claim(partitions=2, partition=1))
    assert len(marked_seqs(server, term, limit=3)) == 3
    if indexes == "none":
        name = scalar(server, "SELECT name FROM tube_private_indexes('queue')")
        server.execute(f"DROP INDEX {name}".encode())
    else:
        server.execute(scalar(server, "SELECT tube_index_sql('queue', 4)").encode())
    server.execute(
        "DO $$ DECLARE f regprocedure; BEGIN FOR f IN SELECT oid FROM pg_proc"
        " WHERE proname ~ '^tube_private_(mark|purge)_[0-9a-f]{16}$'"
        " LOOP EXECUTE format('DROP FUNCTION %s', f); END LOOP; END $$"
    )
    seqs = marked_seqs(server, term)
    assert len(seqs) == 7
    assert purge(server, term, seqs) == 7


def test_pods_come_in_order_whatever_index_there_is(server: Conn) -> None:
    """Of an empty, analysed queue with two, Postgres 16 takes that of the other number, and keeps to it."""
    make_tube(server, partitions=3)
    server.execute("ALTER TABLE tube.queue SET (autovacuum_enabled = off)")
    server.execute(scalar(server, "SELECT tube_index_sql('queue', 2)").encode())
    fill(server, 6, shards=6)
    server.execute("DELETE FROM tube.queue")
    wait_until(lambda: is_analysed_when_empty(server), what="the page of the row is gone")
    term = acquire(server, Claim(partitions=3, partition=1))
    assert marked_seqs(server, term) == []
    fill(server, 600, shards=6)
    seqs = marked_seqs(server, term)
    assert len(seqs) == 200
    assert seqs == sorted(seqs)


def test_a_kept_statement_refuses_another_number_of_partitions(server: Conn) -> None:
    make_tube(server, partitions=2)
    term = acquire(server, Claim(partitions=2, partition=1))
    given = {"mark": "%s, 0, 1, 0, 1, 3, 0, true, '{}'", "purge": "%s, 0, '{1}', 1, 1, 1, 3"}
    for name, arguments in given.items():
        function = scalar(server, "SELECT tube_private_planned('queue', %s)", (name,))
        with pytest.raises(psycopg.Error) as refused:
            server.execute(f"SELECT {function}({arguments})".encode(), (term.leader_id,))
        assert refused.value.sqlstate == "TU002"
