"""How fast messages are stashed, beside a bare INSERT and COPY of the same rows."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from bench.frame.outboxes import BYTES
from bench.frame.page import Section, Target
from bench.frame.rounds import interleave, rates
from bench.frame.server import Server, connect
from bench.frame.statistics import ratios, spread
from pytube.outbox import Message, stash

ROUNDS = 5
ROWS = {1: 300, 100: 10_000, 1000: 20_000}
"""Records a round, by how many there are a call."""
GOALS = {1: 0.5, 100: 0.4, 1000: 0.4}
"""Of the rows of a bare INSERT of as many a statement: 0.5 where each is a commit that waits for the disk."""
COLUMNS = "kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
_BARE = """
    CREATE TABLE public.bare (
        id bigserial PRIMARY KEY, create_time timestamptz NOT NULL DEFAULT clock_timestamp(),
        kafka_topic varchar(249) NOT NULL, kafka_key text, kafka_value text,
        kafka_header_keys text[] NOT NULL, kafka_header_values text[] NOT NULL, leader_id uuid,
        partition_key text)
"""
_INSERT = f"INSERT INTO public.bare ({COLUMNS}) VALUES (%s, %s, %s, %s, %s)"
_INSERT_MANY = (
    f"INSERT INTO public.bare ({COLUMNS}) SELECT t, k, v, ARRAY['type'], ARRAY['changed'] "
    "FROM unnest(%s::text[], %s::text[], %s::text[]) AS m (t, k, v)"
)
_COPY = f"COPY public.bare ({COLUMNS}) FROM STDIN"
HEADERS = {"type": "changed"}


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Outboxes: writing",
        f"Messages with a value of {BYTES} bytes and one header, over one connection, each call a "
        "transaction that waits for the disk. `stash` is `pytube.outbox.stash`. INSERT: one statement for as "
        "many rows, its values as arrays, into a table with the same columns and a primary key, and no "
        "trigger; psycopg prepares it by itself. COPY: as text, of as many rows.",
    )
    dsn = server.database("bench_outbox_stash")
    with connect(dsn) as connection:
        connection.execute("SELECT outbox_ensure_exists('box')")
        connection.execute(_BARE)
        cases: dict[str, Callable[[], float]] = {}
        for each, count in ROWS.items():
            writers = Writers(connection, each, count)
            cases[f"stash {each}"] = writers.stash
            cases[f"INSERT {each}"] = writers.insert
            cases[f"COPY {each}"] = writers.copy

        def before(_: str) -> None:
            connection.execute("TRUNCATE tube.box, public.bare")
            connection.execute("CHECKPOINT")

        taken = interleave(server.readings(dsn), cases, ROUNDS, before)
    server.drop("bench_outbox_stash")
    rows = []
    for each in ROWS:
        to_insert, to_copy = (
            ratios(rates(taken, f"stash {each}"), rates(taken, f"{other} {each}"))
            for other in ("INSERT", "COPY")
        )
        shown = [spread(rates(taken, f"{way} {each}")).text(0) for way in ("stash", "INSERT", "COPY")]
        rows.append([f"{each:,}", *shown, to_insert.text(), to_copy.text()])
        section.targets.append(
            Target(f"outbox: stash to INSERT, {each:,} a call", GOALS[each], to_insert.middle)
        )
    head = ["records a call", "stash, rows/s", "INSERT, rows/s", "COPY, rows/s", "to INSERT", "to COPY"]
    section.table(head, rows)
    return section


class Writers:
    """Ways to write `count` messages, `each` a call."""

    def __init__(self, connection: psycopg.Connection, each: int, count: int) -> None:
        self._connection = connection
        self._calls = [
            [Message("t", f"key {start + n}", "v" * BYTES, HEADERS) for n in range(each)]
            for start in range(0, count, each)
        ]
        self._count = float(count)

    def stash(self) -> float:
        """By our function."""
        for messages in self._calls:
            stash(self._connection, messages, outbox="box")
        return self._count

    def insert(self) -> float:
        """By an INSERT."""
        for messages in self._calls:
            if len(messages) == 1:
                one = messages[0]
                self._connection.execute(_INSERT, [one.topic, one.key, one.value, ["type"], ["changed"]])
            else:
                columns = zip(*((one.topic, one.key, one.value) for one in messages), strict=True)
                self._connection.execute(_INSERT_MANY, [list(column) for column in columns])
        return self._count

    def copy(self) -> float:
        """By COPY."""
        for messages in self._calls:
            with self._connection.cursor().copy(_COPY) as stream:
                for one in messages:
                    stream.write_row((one.topic, one.key, one.value, ["type"], ["changed"]))
        return self._count
