"""Faults of Postgres, the broker and the sink: gone for a while, or just mean."""

from __future__ import annotations

import fcntl

from tests.crash.chaos.monkey import Course, Fault, NotNow, Scene
from tests.crash.chaos.sink import downed, lines_of
from tests.crash.chaos.source import TUBES

_LONGEST_OUTAGE = 5.0


def postgres_killed(scene: Scene) -> Course:
    """SIGKILL to the server, and a start."""
    with scene.alone("postgres"):
        pause = scene.draw.uniform(0.0, _LONGEST_OUTAGE)
        scene.tell(f"for {pause:.1f} s")
        scene.arena.postgres.kill()
        yield pause
        scene.arena.postgres.start()


def sessions_terminated(scene: Scene) -> Course:
    """All sessions of the database but our own."""
    with scene.arena.connect() as connection:
        rows = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    scene.tell(f"{len(rows)} sessions")
    yield 0.0


def broker_killed(scene: Scene) -> Course:
    """SIGKILL to the broker, and a start."""
    with scene.alone("kafka"):
        pause = scene.draw.uniform(0.0, 2 * _LONGEST_OUTAGE)
        scene.tell(f"for {pause:.1f} s and the time of its start")
        scene.arena.kafka.kill()
        yield pause
        scene.arena.kafka.start()


def sink_down(scene: Scene) -> Course:
    """The sink refuses everything for a while."""
    with scene.alone("sink"):
        pause = scene.draw.uniform(0.5, 2 * _LONGEST_OUTAGE)
        scene.tell(f"for {pause:.1f} s")
        flag = downed(scene.arena.journals)
        flag.touch()
        yield pause
        flag.unlink()


def sink_hangs(scene: Scene) -> Course:
    """The sink takes calls of one tube and does not write: somebody else has its lock."""
    with scene.alone("sink"):
        tube = scene.draw.choice(TUBES).name
        pause = scene.draw.uniform(0.5, _LONGEST_OUTAGE)
        path = lines_of(tube, scene.arena.journals)
        if not path.exists():
            raise NotNow
        with path.open("rb") as file:
            # Who has the lock now gives it back soon, unless it is stopped: then the sink hangs anyway.
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise NotNow from error
            scene.tell(f"{tube}, for {pause:.1f} s")
            yield pause


FAULTS = [
    Fault("Postgres killed with SIGKILL", 1, postgres_killed),
    Fault("all database sessions terminated", 1.5, sessions_terminated),
    Fault("broker killed with SIGKILL", 1, broker_killed),
    Fault("sink down", 1, sink_down),
    Fault("sink hangs", 1, sink_hangs),
]
