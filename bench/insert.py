"""What fan-outs and backfills by SQL cost, against a COPY of the very same pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from bench.frame.page import Section, Target
from bench.frame.readings import Reading, Readings
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import Spread, ratios, spread

IDS = 2_000_000
ROWS = 1_000_000
ROUNDS = 3
GOAL = 0.5
PIECE = 1 << 18
HEAD = ["", "ids/s", "ratio to COPY", "WAL B each", "server CPU µs each"]
WORDS = {
    "copy": "COPY, text",
    "binary": "COPY, binary",
    "insert": "`tube_pods_insert`",
    "spread": "`tube_pods_insert`, over 16 shards",
    "by id": "step 3, by the key",
    "by time": "step 3, by a column that grows with the key",
    "by chance": "step 3, by a column in random order",
}


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Fan-out and backfill by SQL",
        f"`tube_pods_insert` of {IDS:,} ids, read from a table, and `tube_backfill_step3` of a table of "
        f"{ROWS:,} rows, each against a client's COPY of the pods that it makes (250 ids each), which were "
        "made beforehand: that one neither reads nor sorts. Each is one transaction, durable; the tube is "
        "emptied before. Ratios are taken round by round to COPY in text format; in brackets their least "
        "and greatest.",
    )
    dsn = server.database("bench_insert")
    with connect(dsn) as admin, connect(dsn) as writer:
        _prepare(admin)
        readings = server.readings(dsn)
        fan_out = _insert(writer, "one", f"SELECT id, 0 FROM public.item WHERE id <= {IDS}", IDS)
        spread16 = _insert(writer, "wide", f"SELECT id, 0 FROM public.item WHERE id <= {IDS}", IDS)
        with _copies(writer, fan_out, IDS) as copies:
            taken = _compare(readings, admin, copies | {"insert": fan_out, "spread": spread16})
        section.say(f"**Fan-out of {IDS:,} ids**")
        found = _show(section, taken)
        section.targets.append(Target("`tube_pods_insert` to COPY", GOAL, found["insert"].middle))

        step3 = {
            f"by {word}": _step3(writer, column)
            for word, column in (("id", "id"), ("time", "created"), ("chance", "mixed"))
        }
        with _copies(writer, step3["by id"], ROWS) as copies:
            taken = _compare(readings, admin, {"copy": copies["copy"], **step3})
        section.say(f"**Step 3 of {ROWS:,} rows**")
        found = _show(section, taken)
        for name in step3:
            section.targets.append(Target(f"{WORDS[name]}, to COPY", GOAL, found[name].middle))
    server.drop("bench_insert")
    return section


def _prepare(admin: psycopg.Connection) -> None:
    for table, count in (("item", IDS), ("row", ROWS)):
        admin.execute(
            f"CREATE TABLE public.{table}"
            " (id bigint PRIMARY KEY, created timestamptz, mixed integer, note text)"
        )
        admin.execute(
            f"INSERT INTO public.{table} SELECT g, now() + g * interval '1 ms', hashint4(g), "
            f"'a note of some length' FROM generate_series(1, {count}) AS g"
        )
    for tube, shards in (("one", 1), ("wide", 16)):
        admin.execute("SELECT tube_ensure_exists(%s, 1)", [tube])
        admin.execute("SELECT tube_table_ensure_attached(%s, 'public.row', 0, %s)", [tube, shards])
    admin.execute("VACUUM ANALYZE")


def _insert(writer: psycopg.Connection, tube: str, query: str, count: int) -> Callable[[], float]:
    def work() -> float:
        writer.execute("SELECT tube_pods_insert(%s, %s, 0)", [tube, query])
        return count

    return work


def _step3(writer: psycopg.Connection, column: str) -> Callable[[], float]:
    def work() -> float:
        writer.execute("SELECT tube_backfill_step3(tube_backfill_step1(), 'one', 'public.row', %s)", [column])
        return ROWS

    return work


@contextmanager
def _copies(
    writer: psycopg.Connection, make: Callable[[], float], count: int
) -> Iterator[dict[str, Callable[[], float]]]:
    """COPY, in both formats, of the pods that `make` makes; each statement's data lie in a file."""

    def case(format_name: str, file: Path) -> Callable[[], float]:
        def work() -> float:
            statement = f"COPY tube.one (op, shard, ids, payload) FROM STDIN (FORMAT {format_name})"
            with writer.cursor().copy(statement) as copy, file.open("rb") as data:
                while piece := data.read(PIECE):
                    copy.write(piece)
            return count

        return work

    with TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as folder:
        writer.execute("TRUNCATE tube.one")
        make()
        cases = {}
        for name, format_name in (("copy", "text"), ("binary", "binary")):
            file = Path(folder) / name
            statement = (
                "COPY (SELECT op, shard, ids, payload FROM tube.one ORDER BY seq) "
                f"TO STDOUT (FORMAT {format_name})"
            )
            with writer.cursor().copy(statement) as copy, file.open("wb") as data:
                for piece in copy:
                    data.write(piece)
            cases[name] = case(format_name, file)
        yield cases


def _compare(
    readings: Readings, admin: psycopg.Connection, cases: dict[str, Callable[[], float]]
) -> dict[str, list[Reading]]:
    def before(_: str) -> None:
        admin.execute("TRUNCATE tube.one, tube.wide")
        admin.execute("CHECKPOINT")

    return interleave(readings, cases, ROUNDS, before)


def _show(section: Section, taken: dict[str, list[Reading]]) -> dict[str, Spread]:
    found = {name: ratios(rates(taken, name), rates(taken, "copy")) for name in taken}
    section.table(
        HEAD,
        [
            [
                WORDS[name],
                spread(rates(taken, name)).text(0),
                found[name].text(),
                f"{spread([r.wal_each for r in readings]).middle:,.1f}",
                f"{spread([r.cpu_each for r in readings]).middle:,.2f}",
            ]
            for name, readings in taken.items()
        ],
    )
    return found
