"""How fast one worker brings touches from a full tube to a sink that counts, beside the same by hand."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, LiteralString

import psutil

from bench.frame import by_hand
from bench.frame.page import Section, Target
from bench.frame.readings import Reading
from bench.frame.rounds import cpu_each, interleave, rates
from bench.frame.server import Server, connect, systems_own
from bench.frame.statistics import Spread, ratios, spread
from bench.frame.tubes import fill
from bench.sinks import counting
from pytube.cli.worker import GARBAGE_THRESHOLDS
from pytube.config import Config
from pytube.worker import Worker

ROWS = 400_000
ROUNDS = 5
DATABASE = "bench_worker"
TO_HAND = {1: 1.5, 200: 0.2}
"""Speed to the statements by hand, by the ids of a pod.

By hand, client and server wait for each other; a worker and its server work at the same time, on two cores,
which is to be worth more than marks and fences cost. With pods of 200 ids there are next to no statements.
What is left is Python: by hand one integer for each id; in a worker a document with its token, and a look
whether its key is in flight.
"""
CPU_TO_HAND = 2.5
"""CPU of worker and server for a touch of a pod of 1 id: marks, fences and documents come on top."""
TO_READING = 0.5


@dataclass(frozen=True, slots=True)
class Case:
    """A full tube is emptied."""

    how: Literal["none", "row", "by hand"]
    """How a worker enriches; or without one."""
    ids: int
    """Of each pod."""
    count: int
    """Ids in all."""

    @property
    def words(self) -> str:
        """What the table calls it."""
        how = {"none": "worker, no enrichment", "row": "worker, rows as JSON", "by hand": "by hand"}
        return f"{how[self.how]}, pods of {self.ids}"


CASES = {
    "none 1": Case("none", 1, 150_000),
    "hand 1": Case("by hand", 1, 150_000),
    "none 200": Case("none", 200, 1_000_000),
    "hand 200": Case("by hand", 200, 1_000_000),
    "row 1": Case("row", 1, 100_000),
    "row 200": Case("row", 200, 300_000),
}
OLDER = ("none 1", "hand 1")
"""Those that the system's own Postgres has, too."""
READS: dict[str, LiteralString] = {
    "read": "SELECT r.id::bigint, row_to_json(r.*)::text FROM public.x AS r WHERE r.id = ANY (%s)",
    "read typed": "SELECT r.id, r.name, r.v FROM public.x AS r WHERE r.id = ANY (%s)",
}
READ_WORDS = {
    "read": "one connection that reads JSON text",
    "read typed": "one connection that reads typed columns",
}


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Worker",
        "One worker in one process and one partition, with default settings: a tube that is full of "
        "distinct ids, to a coroutine that counts. Time runs from the start of the worker's line to "
        "the last document, so the time before it leads is left out. In turn with it, the same tube by hand, "
        "as pg-tube's own worker does it at its best: one psycopg session reads 1000 pods by the SELECT of "
        "`tube_pods_sql`, makes integers of their ids, deletes the pods, and reads the next ones; it neither "
        "marks nor fences, and has no sink. Both commit with `synchronous_commit` off. Workers that enrich "
        "are compared with what one psycopg connection reads of the same rows, 500 ids a statement, one "
        "statement after the other, fetched as tuples: as ready-made JSON text, which is what a worker asks "
        "for, and as the three columns of the table. That reader neither marks nor purges; the targets are "
        "against it all the same. CPU of the worker's process is its own.",
    )
    logging.getLogger("pytube").setLevel(logging.ERROR)
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)  # as the command `pytube worker` does
    with ExitStack() as stack:
        first = Source(server, stack)
        own = stack.enter_context(systems_own())
        older = Source(own, stack) if own is not None else None
        if older is None:
            section.say("This machine has no Postgres of its own, so there is no older one beside it.")
        _show(section, _interleaved(first, older), first, older)
    server.drop(DATABASE)
    return section


class Source:
    """A server with a tube and its table."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self.name = server.name
        self.dsn = server.database(DATABASE)
        self.readings = server.readings(self.dsn)
        self.admin = stack.enter_context(connect(self.dsn))
        self.session = stack.enter_context(by_hand.session(self.dsn))
        self.admin.execute(
            "CREATE TABLE public.x AS SELECT g::bigint AS id, 'name ' || g AS name, g AS v FROM "
            f"generate_series(0, {ROWS}) g"
        )
        self.admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        self.admin.execute("SELECT tube_ensure_exists('t')")
        self.admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
        self.admin.execute("VACUUM ANALYZE")

    def fill(self, case: Case) -> None:
        """Fill the tube."""
        fill(self.admin, "t", case.count // case.ids, case.ids)

    def hand(self, case: Case) -> float:
        """Empty the tube by hand."""
        return by_hand.read_and_delete(self.session, "t", case.count)

    def read(self, statement: LiteralString) -> float:
        """Read rows, and do nothing else."""
        rows = 0
        for first in range(0, 150_000, 500):
            rows += len(self.session.execute(statement, [list(range(first, first + 500))]).fetchall())
        return rows

    async def drain(self, case: Case) -> Drained:
        """Empty the tube by a worker."""
        tube = {
            "sink": {"type": "callable", "target": "bench.sinks.counting:count"},
            "enrich": {"mode": case.how},
        }
        counting.counted = 0
        worker = Worker(Config.model_validate({"postgres": {"dsn": self.dsn}, "tube": {"t": tube}}))
        await worker.start()
        while not worker.leads("t"):
            await asyncio.sleep(0.001)
        began, cpu = time.perf_counter(), time.process_time()
        while counting.counted < case.count:
            await asyncio.sleep(0.002)
        drained = Drained(time.perf_counter() - began, time.process_time() - cpu)
        await worker.stop()
        return drained


@dataclass(frozen=True, slots=True)
class Drained:
    """Seconds, and CPU seconds of this process, from the begin of the worker's line to the last document."""

    wall: float
    own_cpu: float


def _interleaved(first: Source, older: Source | None) -> dict[str, list[Reading]]:
    """The readings of all cases; those of the older server's are called `older NAME`."""
    drained: dict[str, list[Drained]] = {}
    runs: dict[str, Callable[[], float]] = {}
    fills: dict[str, Callable[[], None]] = {}

    def add(source: Source, name: str, case: Case) -> None:
        def work() -> float:
            drained.setdefault(name, []).append(asyncio.run(source.drain(case)))
            return case.count

        runs[name] = partial(source.hand, case) if case.how == "by hand" else work
        fills[name] = partial(source.fill, case)

    for name, case in CASES.items():
        add(first, name, case)
        if older is not None and name in OLDER:
            add(older, f"older {name}", case)
    taken = interleave(
        first.readings,
        runs | {name: partial(first.read, statement) for name, statement in READS.items()},
        ROUNDS,
        lambda name: fills.get(name, _nothing)(),
        {} if older is None else {f"older {name}": older.readings for name in OLDER},
    )
    for name, parts in drained.items():
        pairs = zip(taken[name], parts[1:], strict=True)  # the first round is thrown away
        taken[name] = [replace(reading, wall=part.wall, own_cpu=part.own_cpu) for reading, part in pairs]
    return taken


def _nothing() -> None:
    """Nothing has to be made for a reader."""


def _show(section: Section, taken: dict[str, list[Reading]], first: Source, older: Source | None) -> None:
    def row(words: str, name: str, to_hand: str, to_read: str) -> list[str]:
        found = taken[name]
        return [
            words,
            spread(rates(taken, name)).text(0),
            to_hand,
            to_read,
            f"{spread([r.own_cpu_each for r in found]).middle:.2f}",
            f"{spread([r.cpu_each for r in found]).middle:.2f}",
            f"{spread([r.wal_each for r in found]).middle:.0f}",
        ]

    servers = [("", first)] + ([("older ", older)] if older is not None else [])
    rows = []
    for prefix, source in servers:
        for name, case in CASES.items():
            if (key := prefix + name) not in taken:
                continue
            enriched = case.how == "row"
            to_hand = "" if enriched else _ratio(taken, key, f"{prefix}hand {case.ids}").text()
            to_read = _ratio(taken, key, "read").text() if enriched else ""
            rows.append(row(f"{source.name}: {case.words}", key, to_hand, to_read))
    for name, words in READ_WORDS.items():
        rows.append(row(f"{first.name}: {words}", name, "", _ratio(taken, name, "read").text()))
    head = [
        "",
        "touches/s",
        "ratio to by hand",
        "ratio to reading JSON",
        "own CPU µs",
        "server CPU µs",
        "WAL B",
    ]
    section.table(head, rows)
    for prefix, source in servers:
        section.say(_bound(taken, f"{prefix}none 1", f"{prefix}hand 1", source.name))
    section.targets += _targets(taken, servers)


def _bound(taken: dict[str, list[Reading]], none: str, hand: str, server: str) -> str:
    """What the machine's cores allow, if they are all busy and nobody waits for anybody."""
    cores = psutil.cpu_count() or 1
    by_hand = rates(taken, hand)
    most = [cores * 1e6 / cpu / rate for cpu, rate in zip(cpu_each(taken, none), by_hand, strict=True)]
    return (
        f"{server}: at the CPU that worker and server take for a touch of a pod of 1 id, {cores} cores allow "
        f"at most {spread(most).text()} times the speed by hand."
    )


def _targets(taken: dict[str, list[Reading]], servers: list[tuple[str, Source]]) -> list[Target]:
    targets = []
    for prefix, source in servers:
        none, hand = f"{prefix}none 1", f"{prefix}hand 1"
        words = f"no enrichment, pods of 1 id, {source.name}"
        cpu = ratios(cpu_each(taken, none), cpu_each(taken, hand)).middle
        targets += [
            Target(f"{words}, to by hand", TO_HAND[1], _ratio(taken, none, hand).middle),
            Target(f"{words}, CPU to by hand", CPU_TO_HAND, cpu, "at most"),
        ]
    to_hand = _ratio(taken, "none 200", "hand 200").middle
    targets.append(Target("no enrichment, pods of 200 ids, to by hand", TO_HAND[200], to_hand))
    for ids in (1, 200):
        reached = _ratio(taken, f"row {ids}", "read").middle
        words = f"rows as JSON, pods of {ids} id{'s' if ids > 1 else ''}, to reading JSON"
        targets.append(Target(words, TO_READING, reached))
    return targets


def _ratio(taken: dict[str, list[Reading]], over: str, under: str) -> Spread:
    return ratios(rates(taken, over), rates(taken, under))
