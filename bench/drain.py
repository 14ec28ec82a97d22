"""How fast pods are marked and purged over one connection."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from uuid import uuid4

import psycopg

from bench.frame import by_hand
from bench.frame.page import Section, Target
from bench.frame.rounds import cpu_each, interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import ratios, spread
from bench.frame.tubes import Term, array, fill

PODS = 30_000
PASSED = 1_000_000
ROUNDS = 5
TO_READING = 0.5
"""Of the speed of reading and deleting; a mark is one more write of each pod, so that it can't be 1."""
CPU_TO_READING = 2.0
TO_FREE = 0.8
"""While xmin is pinned. Without a floor, a mark reads all dead entries of the index: it came down to 0.14."""

_HAND_MARK = """
    UPDATE tube.{tube} SET leader_id = %s WHERE seq = ANY (ARRAY(
        SELECT seq FROM tube.{tube} WHERE (shard %% 1) = 0 AND (CASE WHEN op = 'B' THEN 1 ELSE 0 END) = 0
            AND seq > %s ORDER BY seq LIMIT 1000))
        AND (shard %% 1) = 0 AND (CASE WHEN op = 'B' THEN 1 ELSE 0 END) = 0
    RETURNING seq, op, shard, ids, payload, ts
"""
_HAND_PURGE = """
    DELETE FROM tube.{tube} WHERE seq = ANY (%s::bigint[])
        AND (shard %% 1) = 0 AND (CASE WHEN op = 'B' THEN 1 ELSE 0 END) = 0
"""


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Drain",
        "Pods of 1 id are marked and purged over one connection, 1000 at a time, `synchronous_commit` "
        "off, the rows fetched into Python: through `tube_pods_mark` and `tube_pods_purge` as a "
        "worker sends them; by hand-written array statements (one UPDATE … RETURNING, one DELETE) "
        "without fencing on an equal table with the same index; one pod at a time; and, as pg-tube's own "
        "worker does, not marked at all, but read by the SELECT of `tube_pods_sql` and deleted. No worker "
        "can do with less than these two statements, so they are what the procedures are compared with: "
        "the target says how much speed marks and fencing cost.",
    )
    dsn = server.database("bench_drain")
    with connect(dsn) as admin, by_hand.session(dsn) as worker:
        for tube in ("ours", "hand", "single", "read"):
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
                "read": lambda: by_hand.read_and_delete(worker, "read", PODS),
                "single": lambda: _one_by_one(worker),
            },
            ROUNDS,
            before,
        )
        words = {
            "ours": "procedures",
            "hand": "array statements by hand",
            "read": "read and deleted, not marked",
            "single": "one pod at a time",
        }
        section.table(
            ["", "pods/s", "WAL B per pod", "server CPU µs per pod", "client CPU µs per pod"],
            [
                [
                    words[name],
                    spread(rates(taken, name)).text(0),
                    f"{spread([r.wal_each for r in found]).middle:,.0f}",
                    f"{spread([r.cpu_each for r in found]).middle:,.1f}",
                    f"{spread([r.own_cpu_each for r in found]).middle:,.1f}",
                ]
                for name, found in taken.items()
            ],
        )
        to_hand = ratios(rates(taken, "ours"), rates(taken, "hand"))
        to_single = ratios(rates(taken, "ours"), rates(taken, "single"))
        to_read = ratios(rates(taken, "ours"), rates(taken, "read"))
        cpu = ratios(cpu_each(taken, "ours"), cpu_each(taken, "read"))
        section.say(
            f"Speed of the procedures to array statements by hand: {to_hand.text()}; to one pod at a time: "
            f"{to_single.text(0)}; to reading and deleting: {to_read.text()}. CPU of server and client to "
            f"reading and deleting: {cpu.text()}."
        )
        section.targets += [
            Target("to array statements by hand", 0.8, to_hand.middle),
            Target("to one pod at a time", 30, to_single.middle),
            Target("marked and purged, to read and deleted", TO_READING, to_read.middle),
            Target("marked and purged, CPU to read and deleted", CPU_TO_READING, cpu.middle, "at most"),
        ]
    server.drop("bench_drain")
    _pinned(server, section)
    return section


def _by_hand(worker: psycopg.Connection) -> float:
    done, floor, leader = 0, 0, uuid4()
    while done < PODS:
        rows = worker.execute(_HAND_MARK.format(tube="hand"), [leader, floor], binary=True).fetchall()
        seqs = [row[0] for row in rows]
        floor = max(seqs)
        worker.execute(_HAND_PURGE.format(tube="hand"), [array(seqs)])
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


def _pinned(server: Server, section: Section) -> None:
    """A transaction that stays open keeps every dead row and index entry of its database where it is."""
    dsns = {name: server.database(f"bench_{name}") for name in ("pinned", "free")}
    with ExitStack() as stack:
        admins = {name: stack.enter_context(connect(dsn)) for name, dsn in dsns.items()}
        pin = stack.enter_context(connect(dsns["pinned"]))
        stack.enter_context(pin.transaction())
        pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        pin.execute("SELECT pg_current_xact_id()")
        terms = {}
        for name, dsn in dsns.items():
            admins[name].execute("SELECT tube_ensure_exists('t')")
            terms[name] = Term(stack.enter_context(by_hand.session(dsn)), "t")

        def before(name: str) -> None:
            admins[name].execute(
                "INSERT INTO tube.t (op, shard, ids) "
                f"SELECT 'U', 0, ARRAY[g] FROM generate_series(1, {PODS}) AS g"
            )

        for _ in range(PASSED // PODS):
            before("pinned")
            terms["pinned"].drain(PODS)
        taken = interleave(
            server.readings(dsns["free"]),
            {name: partial(term.drain, PODS) for name, term in terms.items()},
            ROUNDS,
            before,
        )
    to_free = ratios(rates(taken, "pinned"), rates(taken, "free"))
    section.say(
        f"While a transaction holds xmin, after {PASSED:,} pods have passed: "
        f"{spread(rates(taken, 'pinned')).text(0)} pods/s; in turn with it, in a database where none does: "
        f"{spread(rates(taken, 'free')).text(0)}; ratio {to_free.text()}."
    )
    section.targets.append(
        Target(f"xmin pinned, after {PASSED:,} pods, to not pinned", TO_FREE, to_free.middle)
    )
    for name in dsns:
        server.drop(f"bench_{name}")
