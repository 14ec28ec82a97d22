"""What each option of an attachment costs its writers, and what TRUNCATE does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg

from bench.frame.page import Section, Target
from bench.frame.readings import Reading, Readings
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import ratios, spread

ROWS = 20_000
MANY = 1000
TRUNCATED = 1_000_000
FLAT = 1.5
"""Ids are put in by chunks, so that ten times the rows take no more; all at once, they would take twice."""
PLAIN, SEVERAL = "plain", "several"
SEVERAL_AT_MOST = {1: 1.5, MANY: 1.3}
"""The server's CPU with a key of two columns, to that with a bigint, by the rows of a statement."""
OPTIONS = {
    PLAIN: ("", "nothing but the table and its shard"),
    "columns": (", columns => '{v}'", "`columns`, one of which changes"),
    "unchanged": (", columns => '{note}'", "`columns` of which none changes: no touch"),
    "related": (", id_col => 'ref'", "a related table, by `id_col`"),
    SEVERAL: (", key_cols => '{ref,id}'", "a key of two columns, `key_cols`"),
    "replica": (", replica => true", "`replica`, written to by others than replication"),
    "applied": (", replica => true", "`replica`, written to as replication does"),
}
HEAD = ["", "rate/s", "ratio to plain", "server CPU µs each"]


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Options of capture",
        "An attached table (`id`, `ref`, `v`, `note`) with an option against one without, in one session, "
        "`synchronous_commit` off: 1-row UPDATEs by key, prepared, and UPDATEs of 1000 rows, rates in rows. "
        "Ratios are taken round by round; in brackets their least and greatest. Below 1 the option costs. "
        "Predicates and spread tables are under Capture.",
    )
    dsn = server.database("bench_options")
    with connect(dsn) as admin:
        for name in OPTIONS:
            _prepare(admin, name)
        readings = server.readings(dsn)
        with connect(dsn, synchronous_commit="off") as writer:
            _updates(admin, writer, readings, section, "1-row UPDATE", 3000, 1)
            _updates(admin, writer, readings, section, "1000-row UPDATE", 15, MANY)
        _truncate(dsn, admin, section)
    server.drop("bench_options")
    return section


def _prepare(admin: psycopg.Connection, name: str) -> None:
    options, _ = OPTIONS[name]
    admin.execute(
        f"CREATE TABLE public.{name} (id bigint PRIMARY KEY, ref bigint, v int NOT NULL, note text)"
    )
    admin.execute(
        f"INSERT INTO public.{name}"
        f" SELECT g, g, 0, 'a note of some length' FROM generate_series(1, {ROWS}) AS g"
    )
    keys = "text" if name == SEVERAL else "bigint"
    admin.execute("SELECT tube_ensure_exists(%s, key_type => %s::regtype)", [f"t_{name}", keys])
    if name == "related":
        admin.execute("CREATE TABLE public.root (id bigint PRIMARY KEY)")
        admin.execute(f"SELECT tube_table_ensure_attached('t_{name}', 'public.root', 0)")
    admin.execute(f"SELECT tube_table_ensure_attached('t_{name}', 'public.{name}', 0{options})")
    admin.execute(f"VACUUM ANALYZE public.{name}")


def _updates(
    admin: psycopg.Connection,
    writer: psycopg.Connection,
    readings: Readings,
    section: Section,
    title: str,
    statements: int,
    rows: int,
) -> None:
    at = dict.fromkeys(OPTIONS, 0)

    def before(name: str) -> None:
        admin.execute(f"TRUNCATE tube.t_{name}")
        role = "replica" if name == "applied" else "origin"
        writer.execute(f"SET session_replication_role = {role}")

    def case(name: str) -> Callable[[], float]:
        statement = f"UPDATE public.{name} SET v = v + 1 WHERE id BETWEEN %s AND %s"

        def work() -> float:
            with writer.transaction():
                for _ in range(statements):
                    first = at[name] % ROWS + 1
                    at[name] += rows
                    writer.execute(statement, [first, first + rows - 1], prepare=True)
            return statements * rows

        return work

    taken = interleave(readings, {name: case(name) for name in OPTIONS}, 7, before)
    writer.execute("RESET session_replication_role")
    section.say(f"**{title}**")
    section.table(HEAD, [_row(taken, name) for name in OPTIONS])
    costs = {name: [reading.cpu_each for reading in taken[name]] for name in (SEVERAL, PLAIN)}
    section.targets.append(
        Target(
            f"{title}, server CPU with a key of two columns to bigint",
            SEVERAL_AT_MOST[rows],
            ratios(costs[SEVERAL], costs[PLAIN]).middle,
            "at most",
        )
    )


def _row(taken: dict[str, list[Reading]], name: str) -> list[str]:
    return [
        OPTIONS[name][1],
        spread(rates(taken, name)).text(0),
        ratios(rates(taken, name), rates(taken, PLAIN)).text(),
        f"{spread([reading.cpu_each for reading in taken[name]]).middle:,.1f}",
    ]


def _truncate(dsn: str, admin: psycopg.Connection, section: Section) -> None:
    """TRUNCATE of a large table: how fast, and how much memory it takes beyond that of a small one."""
    admin.execute("SELECT tube_ensure_exists('t_truncate', 1)")
    grown: dict[int, float] = {}
    for rows in (TRUNCATED // 10, TRUNCATED):
        admin.execute("CREATE TABLE public.big (id bigint PRIMARY KEY, v int)")
        admin.execute(f"INSERT INTO public.big SELECT g, 0 FROM generate_series(1, {rows}) AS g")
        admin.execute("SELECT tube_table_ensure_attached('t_truncate', 'public.big', 0)")
        with connect(dsn) as session:
            readings = Readings(connect(dsn), session.info.backend_pid)
            with Memory(session.info.backend_pid) as memory:
                reading = readings.of(partial(_gone, session, rows))
            grown[rows] = memory.most
        found = admin.execute("SELECT sum(cardinality(ids)) FROM tube.t_truncate").fetchone()
        assert found == (rows,), found
        section.say(
            f"TRUNCATE of {rows:,} rows: {reading.rate:,.0f} rows/s; the session's own memory was at most "
            f"{grown[rows]:.0f} MiB."
        )
        admin.execute("DROP TABLE public.big")
        admin.execute("TRUNCATE tube.t_truncate")
    section.targets.append(
        Target(
            "TRUNCATE, memory of its session, 1 M rows to 100,000",
            FLAT,
            grown[TRUNCATED] / grown[TRUNCATED // 10],
            "at most",
        )
    )


def _gone(session: psycopg.Connection, rows: int) -> float:
    session.execute("TRUNCATE public.big")
    return rows


class Memory:
    """The greatest memory of its own that a process has while this is open, in MiB."""

    def __init__(self, pid: int) -> None:
        self.most = 0.0
        self._status = Path(f"/proc/{pid}/status")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            fields = dict(line.split(":", 1) for line in self._status.read_text().splitlines() if ":" in line)
            self.most = max(self.most, int(fields["RssAnon"].split()[0]) / 1024)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
