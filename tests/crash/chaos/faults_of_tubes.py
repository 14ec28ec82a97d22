"""Faults that an operator or a writer makes: repartitions, long and prepared transactions, bursts."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

import psycopg

from pytube.errors import PytubeError
from pytube.outbox.admin import Outboxes
from pytube.tubes.admin import Tubes
from tests.crash.chaos.monkey import Course, Fault, NotNow, Scene
from tests.crash.chaos.outboxes import OUTBOXES
from tests.crash.chaos.source import EXTRAS, FAR, TUBES

_MOST_PARTITIONS = 8
_REPARTITIONED = [outbox.name for outbox in OUTBOXES]
_LONGEST = 25.0
_STATEMENTS = 25
_TOUCH = "INSERT INTO items SELECT g, 1, 'late' FROM generate_series(%(first)s::bigint, %(first)s + 20) g"


def repartition(scene: Scene) -> Course:
    """Another number of partitions, while writers and workers are at it."""
    tube = scene.draw.choice([*(one.name for one in TUBES), *_REPARTITIONED])
    with scene.alone("postgres", f"partitions of {tube}"):
        partitions = scene.draw.randint(1, _MOST_PARTITIONS)
        try:
            with scene.arena.connect() as connection:
                connection.execute("SET lock_timeout = '10s'")
                (Outboxes if tube in _REPARTITIONED else Tubes)(connection).create(tube, partitions)
            scene.tell(f"{tube} has {partitions}")
        except PytubeError as error:
            scene.tell(f"{tube} kept those it had: {error}")
            raise NotNow from error
        yield 0.0


def long_transaction(scene: Scene) -> Course:
    """A transaction that has written, and is committed or rolled back late: its touches have old seqs."""
    seconds = scene.draw.uniform(5.0, _LONGEST)
    commits = scene.draw.random() < 0.8
    connection = scene.arena.connect()
    try:
        connection.execute("BEGIN")
        connection.execute(_TOUCH, {"first": _first(scene)})
        scene.tell(f"for {seconds:.1f} s, then {'committed' if commits else 'rolled back'}")
        yield seconds
        with suppress(psycopg.OperationalError):
            connection.execute("COMMIT" if commits else "ROLLBACK")
    finally:
        connection.close()


def prepared_transaction(scene: Scene) -> Course:
    """The same with one that is prepared, which outlives its session and the server."""
    if not scene.arena.prepared:
        raise NotNow
    gid = f"chaos-{uuid4().hex[:8]}"
    seconds = scene.draw.uniform(5.0, _LONGEST)
    how = "COMMIT" if scene.draw.random() < 0.8 else "ROLLBACK"
    with scene.arena.connect() as connection:
        connection.execute("BEGIN")
        connection.execute(_TOUCH, {"first": _first(scene)})
        connection.execute(f"PREPARE TRANSACTION '{gid}'")
    scene.tell(f"for {seconds:.1f} s, then {how}")
    yield seconds
    while not _finish(scene, f"{how} PREPARED '{gid}'"):
        yield 0.5


def _finish(scene: Scene, statement: str) -> bool:
    """Run it; False when the server is down."""
    try:
        with scene.arena.connect() as connection:
            connection.execute(statement)
    except psycopg.errors.UndefinedObject:
        return True  # the answer to the last attempt was lost
    except psycopg.OperationalError:
        return False
    return True


def burst(scene: Scene) -> Course:
    """Statements of 200 rows each, one after the other."""
    with scene.arena.connect() as connection:
        for _ in range(_STATEMENTS):
            first = scene.draw.randint(1, EXTRAS - 199)
            with suppress(psycopg.errors.DeadlockDetected):
                connection.execute(
                    "UPDATE extras SET n = n + 1 WHERE id BETWEEN %s AND %s", (first, first + 199)
                )
    scene.tell(f"{_STATEMENTS} statements")
    yield 0.0


def _first(scene: Scene) -> int:
    """Where ids begin that nobody else writes."""
    return FAR + scene.draw.randrange(10**9)


FAULTS = [
    Fault("repartition", 2, repartition),
    Fault("long transaction", 1, long_transaction),
    Fault("prepared transaction", 1, prepared_transaction),
    Fault("burst of statements of 200 rows", 1, burst),
]
