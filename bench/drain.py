"""How fast pods are marked and purged over one connection."""

from __future__ import annotations

import time
from uuid import uuid4

import psycopg

from bench.frame.page import Section, Target
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import ratios, spread
from bench.frame.tubes import Term, fill

PODS = 30_000
PASSED = 1_000_000
ENDS = 4
"""Pieces at the start and at the end of what passes while xmin is pinned."""
ROUNDS = 5

_HAND_MARK = """
    UPDATE tube.{tube} SET leader_id = %s WHERE seq = ANY (ARRAY(
        SELECT seq FROM tube.{tube} WHERE (shard %% 1) = 0 AND (CASE WHEN op = 'B' THEN 1 ELSE 0 END) = 0
            AND seq > %s ORDER BY seq LIMIT 1000))
        AND (shard %% 1) = 0 AND (CASE WHEN op = 'B' THEN 1 ELSE 0 END) = 0
    RETURNING seq, op, shard, ids, payload, ts
"""
_HAND_PURGE = """
    DELETE FROM tube.{tube} WHERE seq = ANY (%s)
        AND (shard %% 1) = 0 AND (CASE WHEN op = 'B' THEN 1 ELSE 0 END) = 0
"""


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Drain",
        "Pods of 1 id are marked and purged over one connection, 1000 at a time, `synchronous_commit` "
        "off, the rows fetched into Python: through `tube_pods_mark` and `tube_pods_purge` as a "
        "worker sends them; by hand-written array statements (one UPDATE … RETURNING, one DELETE) "
        "without fencing on an equal table with the same index; and one pod at a time.",
    )
    dsn = server.database("bench_drain")
    with (
        connect(dsn) as admin,
        connect(dsn, synchronous_commit="off", plan_cache_mode="force_custom_plan") as worker,
    ):
        for tube in ("ours", "hand", "single"):
            admin.execute("SELECT tube_ensure_exists(%s)", [tube])
            fill(admin, tube, 1)
        term = Term(worker, "ours")

        def before(name: str) -> None:
            fill(admin, name, 500 if name == "single" else PODS)
            term.floor = 0

        taken = interleave(
            server.readings(dsn),
            {
                "ours": lambda: term.drain(PODS),
                "hand": lambda: _by_hand(worker),
                "single": lambda: _one_by_one(worker),
            },
            ROUNDS,
            before,
        )
        words = {"ours": "procedures", "hand": "array statements by hand", "single": "one pod at a time"}
        section.table(
            ["", "pods/s", "WAL B per pod", "server CPU µs per pod", "client CPU µs per pod"],
            [
                [
                    words[name],
                    spread(rates(taken, name)).text(0),
                    f"{spread([r.wal_each for r in found]).middle:,.0f}",
                    f"{spread([r.cpu_each for r in found]).middle:,.1f}",
                    f"{spread([r.own_cpu / r.amount * 1e6 for r in found]).middle:,.1f}",
                ]
                for name, found in taken.items()
            ],
        )
        to_hand = ratios(rates(taken, "ours"), rates(taken, "hand"))
        to_single = ratios(rates(taken, "ours"), rates(taken, "single"))
        section.say(
            f"Procedures to statements by hand: {to_hand.text()}; to one at a time: {to_single.text(0)}."
        )
        section.targets += [
            Target("to array statements by hand", 0.8, to_hand.middle),
            Target("to one pod at a time", 30, to_single.middle),
            Target("pods of 1 id", 150_000, spread(rates(taken, "ours")).middle, unit="/s"),
        ]
        _pinned(dsn, admin, worker, section)
    server.drop("bench_drain")
    return section


def _by_hand(worker: psycopg.Connection) -> float:
    done, floor, leader = 0, 0, uuid4()
    while done < PODS:
        rows = worker.execute(_HAND_MARK.format(tube="hand"), [leader, floor], binary=True).fetchall()
        seqs = [row[0] for row in rows]
        floor = max(seqs)
        worker.execute(_HAND_PURGE.format(tube="hand"), [seqs])
        done += len(seqs)
    return done


def _one_by_one(worker: psycopg.Connection) -> float:
    leader = uuid4()
    seqs = [row[0] for row in worker.execute("SELECT seq FROM tube.single ORDER BY seq").fetchall()]
    for seq in seqs:
        where = "WHERE seq = %s AND (shard %% 1) = 0 AND (CASE WHEN op = 'B' THEN 1 ELSE 0 END) = 0"
        worker.execute(f"UPDATE tube.single SET leader_id = %s {where} RETURNING *", [leader, seq]).fetchall()
        worker.execute(f"DELETE FROM tube.single {where}", [seq])
    return len(seqs)


def _pinned(dsn: str, admin: psycopg.Connection, worker: psycopg.Connection, section: Section) -> None:
    """A transaction that stays open keeps every dead row and index entry where it is."""
    admin.execute("SELECT tube_ensure_exists('pinned')")
    fill(admin, "pinned", PODS)
    with connect(dsn) as pin, pin.transaction():
        pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        pin.execute("SELECT pg_current_xact_id()")
        term = Term(worker, "pinned")
        speeds = []
        for _ in range(ENDS + PASSED // PODS):
            speeds.append(_timed(term))
            admin.execute(
                "INSERT INTO tube.pinned (op, shard, ids) SELECT 'U', 0, ARRAY[g] FROM "
                f"generate_series(1, {PODS}) g"
            )
    begin, end = spread(speeds[:ENDS]), spread(speeds[-ENDS:])
    section.say(
        f"While a transaction holds xmin: {begin.text(0)} pods/s at first, {end.text(0)} after "
        f"{PASSED:,} pods have passed."
    )
    section.targets.append(
        Target(f"xmin pinned, after {PASSED:,} pods, to its own speed", 0.8, end.middle / begin.middle)
    )


def _timed(term: Term) -> float:
    began = time.perf_counter()
    return term.drain(PODS) / (time.perf_counter() - began)
