"""What a tube costs those who write to its table."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg

from bench.frame.page import Section, Target
from bench.frame.readings import Reading, Readings
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import Spread, ratios, spread
from bench.frame.workers import started, wait_for

ROWS = 100_000
CASES = {
    "none": (),
    "p1": (1, None, 1),
    "p64": (64, None, 1),
    "predicate": (1, "v >= 0", 1),
    "spread16": (16, None, 16),
}
WORDS = {
    "none": "no tube",
    "p1": "1 partition",
    "p64": "64 partitions",
    "predicate": "with a predicate",
    "spread16": "over 16 shards",
    "no_events": "1 partition, without event triggers",
}
TABLES = {"no_events": "p1"}
"""Cases that write to the table of another one."""
ONE_ROW = {
    "UPDATE": f"\\set i random(1, {ROWS})\nUPDATE public.t_{{name}} SET v = v + 1 WHERE id = :i;",
    "INSERT": "INSERT INTO public.t_{name} (v, note) VALUES (1, 'a note of some length');",
    "DELETE": "DELETE FROM public.d_{name} WHERE id = (SELECT nextval('public.gone_{name}'));",
    "UPSERT": f"\\set i random(1, {ROWS})\nINSERT INTO public.t_{{name}} (id, v) VALUES (:i, 1)"
    " ON CONFLICT (id) DO UPDATE SET v = excluded.v;",
}
GOALS = {"p1": (0.80, 0.55), "predicate": (0.78, 0.53), "spread16": (0.78, 0.55)}
"""Of the rates without a tube: with synchronous_commit on, and off."""
OPEN = "BEGIN;\nINSERT INTO public.t_p1 (v, note) VALUES (1, 'a note of some length');\n\\sleep 1 s\nCOMMIT;"
OPEN_WRITERS = 8
TEMPORARY = 300
TEMPORARY_GOAL = 1.3
"""Our event triggers only look whether a table of ours is meant; with work done in them it was 4."""
HEAD = ["", "rate/s", "ratio to no tube", "WAL B each", "server CPU µs each"]


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Capture",
        "Writers of a table that feeds a tube against writers of an equal table that feeds none. One "
        "row per transaction: pgbench with 4 clients, prepared statements, a table of 100,000 rows "
        "(`id bigserial`, `v int`, `note text`). 1000 rows per statement: one session, a narrow table "
        "(`id`, `v`), rates in rows. Of 1-row statements, UPDATEs stand for all in what more "
        "partitions, a predicate and shards cost. Ratios are taken round by round; in brackets their least "
        "and greatest. Below 1 the tube costs.",
    )
    dsn = server.database("bench_capture")
    with connect(dsn) as admin:
        _prepare(admin)
        readings = server.readings(dsn)
        for op, rounds, names in (
            ("UPDATE", 7, [*CASES, *TABLES]),
            ("UPSERT", 3, ["none", "p1"]),
            ("INSERT", 3, ["none", "p1"]),
            ("DELETE", 3, ["none", "p1"]),
        ):
            for commit in (True, False):
                _one_row(server, dsn, admin, readings, section, op, rounds, names, commit)
        _many_rows(dsn, admin, readings, section)
        _temporary(server, dsn, section)
        _wake(server, dsn, admin, readings, section)
    server.drop("bench_capture")
    return section


def _prepare(admin: psycopg.Connection) -> None:
    for name, tube in CASES.items():
        for kind in "td":
            admin.execute(
                f"CREATE TABLE public.{kind}_{name} (id bigserial PRIMARY KEY, v int NOT NULL, note text)"
            )
            admin.execute(
                f"INSERT INTO public.{kind}_{name} (v, note) SELECT 0, 'a note of some length' "
                f"FROM generate_series(1, {ROWS if kind == 't' else 2 * ROWS})"
            )
        admin.execute(f"CREATE TABLE public.n_{name} (id bigint PRIMARY KEY, v int NOT NULL)")
        admin.execute(f"CREATE SEQUENCE public.gone_{name} CACHE 1")
        if tube:
            partitions, predicate, shards = tube
            admin.execute("SELECT tube_ensure_exists(%s, %s, %s)", [name, partitions, predicate])
            for kind in "tdn":
                admin.execute(
                    "SELECT tube_table_ensure_attached(%s, %s::regclass, 0, %s)",
                    [name, f"public.{kind}_{name}", shards],
                )
    admin.execute("VACUUM ANALYZE")


def _empty(admin: psycopg.Connection, name: str) -> None:
    if CASES[name]:
        admin.execute(f"TRUNCATE tube.{name}")


def _set_event_triggers(admin: psycopg.Connection, state: str) -> None:
    for (name,) in admin.execute("SELECT quote_ident(evtname) FROM pg_event_trigger").fetchall():
        admin.execute(f"ALTER EVENT TRIGGER {name} {state}")


def _one_row(
    server: Server,
    dsn: str,
    admin: psycopg.Connection,
    readings: Readings,
    section: Section,
    op: str,
    rounds: int,
    names: list[str],
    commit: bool,
) -> None:
    def case(name: str) -> Callable[[], float]:
        script = ONE_ROW[op].format(name=TABLES.get(name, name))
        return lambda: server.pgbench(dsn, script, clients=4, seconds=1, commit=commit)

    def make_ready(name: str) -> None:
        _set_event_triggers(admin, "DISABLE" if name == "no_events" else "ENABLE")
        _empty(admin, TABLES.get(name, name))

    taken = interleave(readings, {name: case(name) for name in names}, rounds, make_ready)
    _set_event_triggers(admin, "ENABLE")
    how = f"synchronous_commit {'on' if commit else 'off'}"
    section.say(f"**1-row {op}, {how}** (transactions)")
    found = _show(section, taken)
    if op == "UPDATE":
        for name, goals in GOALS.items():
            section.targets.append(
                Target(f"1-row UPDATE, {WORDS[name]}, {how}", goals[0 if commit else 1], found[name].middle)
            )
        of = ratios(rates(taken, "p64"), rates(taken, "p1")).middle
        section.targets.append(Target(f"1-row UPDATE, 64 partitions to 1, {how}", 0.97, of))
        worse = found["p1"].middle - found["no_events"].middle
        section.targets.append(
            Target(f"1-row UPDATE, without event triggers, less by, {how}", 0.03, worse, "at most")
        )
    elif op == "UPSERT":
        section.targets.append(Target(f"1-row upsert, {how}", 0.45, found["p1"].middle))


def _many_rows(dsn: str, admin: psycopg.Connection, readings: Readings, section: Section) -> None:
    at = dict.fromkeys(CASES, 0)
    with connect(dsn, synchronous_commit="off") as writer:

        def case(name: str, statement: str) -> Callable[[], float]:
            def work() -> float:
                for first in range(at[name], at[name] + 20_000, 1000):
                    writer.execute(statement.format(name=name, first=first, last=first + 999))
                return 20_000

            return work

        def next_rows(name: str) -> None:
            _empty(admin, name)
            at[name] += 20_000

        def same_rows(name: str) -> None:
            _empty(admin, name)

        def _back(name: str) -> None:
            _empty(admin, name)
            at[name] -= 20_000

        statements = {
            "INSERT": (
                "INSERT INTO public.n_{name} SELECT g, 0 FROM generate_series({first}, {last}) AS g",
                next_rows,
            ),
            "UPDATE": ("UPDATE public.n_{name} SET v = v + 1 WHERE id BETWEEN {first} AND {last}", same_rows),
            "DELETE": (
                "DELETE FROM public.n_{name} WHERE id BETWEEN {first} AND {last}",
                _back,
            ),
        }

        for op, (statement, before) in statements.items():
            rounds = 9 if op == "INSERT" else 7
            if op == "DELETE":
                at.update({name: value + 20_000 for name, value in at.items()})
            taken = interleave(readings, {name: case(name, statement) for name in CASES}, rounds, before)
            section.say(f"**1000-row {op}** (rows)")
            _show(section, taken, digits=1)
            slower = ratios(rates(taken, "none"), rates(taken, "p1")).middle
            if op == "INSERT":
                section.targets.append(
                    Target("1000-row INSERT, time per row to no tube", 1.20, slower, "at most")
                )


def _temporary(server: Server, dsn: str, section: Section) -> None:
    """What our event triggers cost somebody else's temporary table."""
    bare = server.postgres.dsn("bench_bare")
    with connect(server.postgres.dsn()) as admin:
        admin.execute("CREATE DATABASE bench_bare")
    taken: dict[str, list[float]] = {"bare": [], "ours": []}
    with connect(bare) as without, connect(dsn) as ours:
        for _ in range(TEMPORARY):
            for name, session in (("bare", without), ("ours", ours)):
                began = time.perf_counter()
                session.execute("CREATE TEMP TABLE fleeting (id int)")
                session.execute("DROP TABLE fleeting")
                taken[name].append((time.perf_counter() - began) * 1e3)
    server.drop("bench_bare")
    before, after = (statistics.median(taken[name]) for name in ("bare", "ours"))
    section.say(
        f"**CREATE and DROP of a temporary table**: {before:.2f} ms in a database without our SQL, "
        f"{after:.2f} ms in this one (medians of {TEMPORARY})."
    )
    section.targets.append(
        Target("a temporary table, time to without", TEMPORARY_GOAL, after / before, "at most")
    )


def _wake(server: Server, dsn: str, admin: psycopg.Connection, readings: Readings, section: Section) -> None:
    script = ONE_ROW["UPDATE"].format(name="p1")
    section.say(
        "**Wake-up**: the same 1-row UPDATE with 1 partition, `synchronous_commit` off. First with a worker "
        "that serves the tube: `pytube.wake` on against off at the writers; also beside writers that put "
        "in a row and stay open for 1 s after it. Then the worst case, which lasts no longer than the first "
        "look of a woken worker: the sleeper row stays, so that every writer "
        "notifies, and a session listens."
    )
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder,
        started(Path(folder), dsn, "p1", name="one", enrich="none") as worker,
    ):
        _empty(admin, "p1")
        admin.execute("UPDATE public.t_p1 SET v = v + 1 WHERE id = 1")
        wait_for(lambda: bool(worker.read()), "the first document")
        for clients in (4, 8):
            cases = {
                state: partial(
                    server.pgbench,
                    dsn,
                    script,
                    clients=clients,
                    seconds=2,
                    commit=False,
                    pytube_wake=state,
                )
                for state in ("off", "on")
            }
            taken = interleave(readings, cases, 3)
            found = _tell(section, taken, "off", "on", f"{clients} writers and a worker")
            section.targets.append(Target(f"wake-up on to off, {clients} writers", 0.95, found.middle))
        found = _beside_open_writers(server, dsn, admin, readings, section, script)
        section.targets.append(Target("wake-up on to off, beside open writers", 0.95, found.middle))

    def before(name: str) -> None:
        _empty(admin, "p1")
        admin.execute("DELETE FROM tube_sleeper")
        if name == "asleep":
            admin.execute("INSERT INTO tube_sleeper (tube, partition, partitions) VALUES ('p1', 0, 1)")

    with _Listener(dsn):
        work = partial(server.pgbench, dsn, script, clients=8, seconds=1, commit=False)
        taken = interleave(readings, {"awake": work, "asleep": work}, 3, before)
        _tell(section, taken, "awake", "asleep", "8 writers that all notify")
    admin.execute("DELETE FROM tube_sleeper")


def _beside_open_writers(
    server: Server, dsn: str, admin: psycopg.Connection, readings: Readings, section: Section, script: str
) -> Spread:
    """On to off, while others write a row and stay open for a second."""
    cases = {
        state: partial(server.pgbench, dsn, script, clients=4, seconds=2, commit=False, pytube_wake=state)
        for state in ("off", "on")
    }
    others: list[threading.Thread] = []

    def join() -> None:
        while others:
            others.pop().join()

    def before(state: str) -> None:
        join()
        work = partial(
            server.pgbench, dsn, OPEN, clients=OPEN_WRITERS, seconds=3, commit=False, pytube_wake=state
        )
        others.append(threading.Thread(target=work))
        others[0].start()
        wait_for(lambda: _open_writers(admin) == OPEN_WRITERS, "all of them are open")

    taken = interleave(readings, cases, 3, before)
    join()
    return _tell(
        section,
        taken,
        "off",
        "on",
        f"4 writers and a worker, and {OPEN_WRITERS} writers that stay open for 1 s",
    )


def _open_writers(admin: psycopg.Connection) -> int:
    row = admin.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE state = 'idle in transaction' AND backend_xid IS NOT NULL"
    ).fetchone()
    assert row
    return int(row[0])


def _tell(section: Section, taken: dict[str, list[Reading]], off: str, on: str, who: str) -> Spread:
    found = ratios(rates(taken, on), rates(taken, off))
    section.say(
        f"{who}: {spread(rates(taken, off)).text(0)} without, {spread(rates(taken, on)).text(0)} with; "
        f"ratio {found.text()}."
    )
    return found


class _Listener:
    """Listens, as a worker does, until it is left."""

    def __init__(self, dsn: str) -> None:
        self._connection = connect(dsn)
        row = self._connection.execute("SELECT tube_channel('p1')").fetchone()
        assert row
        self._connection.execute(f"LISTEN {row[0]}")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def _listen(self) -> None:
        while not self._over.is_set():
            for _ in self._connection.notifies(timeout=0.2):
                pass

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._connection.close()


def _show(section: Section, taken: dict[str, list[Reading]], digits: int = 0) -> dict[str, Spread]:
    found = {name: ratios(rates(taken, name), rates(taken, "none")) for name in taken}
    section.table(
        HEAD,
        [
            [
                WORDS[name],
                spread(rates(taken, name)).text(0),
                found[name].text(),
                spread([r.wal_each for r in readings]).text(0).split(" ")[0],
                f"{spread([r.cpu_each for r in readings]).middle:,.{digits}f}",
            ]
            for name, readings in taken.items()
        ],
    )
    return found
