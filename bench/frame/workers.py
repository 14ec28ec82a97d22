"""Workers as an operator runs them: processes of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parents[2]
_CONFIG = """
[postgres]
dsn = "{dsn}"

[worker]
client_id = "${{CLIENT_ID}}"
"""
_TUBE = """
[tube.{tube}.sink]
type = "callable"
target = "bench.sinks.{target}"

[tube.{tube}.enrich]
mode = "{enrich}"
"""
_KAFKA = """
[kafka]
bootstrap_servers = "{kafka}"
"""
START_LIMIT = 30.0


@dataclass
class Process:
    """One worker, and what its sink has written down."""

    process: subprocess.Popen[bytes]
    stamps: Path

    def read(self, since: int = 0) -> list[tuple[int, int]]:
        """`(id, monotonic nanoseconds)` of all documents from that moment on."""
        if not self.stamps.exists():
            return []
        lines = (
            line.split()
            for line in self.stamps.read_bytes().splitlines(keepends=True)
            if line.endswith(b"\n")
        )
        return [(int(key), int(at)) for key, at in lines if int(at) >= since]


@contextmanager
def started(
    folder: Path,
    dsn: str,
    tube: str,
    *,
    name: str,
    target: str = "stamping:stamp",
    enrich: str = "row",
    kafka: str = "",
    more: str = "",
) -> Iterator[Process]:
    """A worker of one tube that was started; it may not lead yet. Killed at the end, if it lives.

    Its election is by lease, or neli where `kafka` names bootstrap servers. `more` is added to its
    configuration.
    """
    config = _CONFIG.format(dsn=dsn) + _TUBE.format(tube=tube, target=target, enrich=enrich) + more
    stamps = folder / f"{name}.stamps"
    with process(folder, config + (_KAFKA.format(kafka=kafka) if kafka else ""), name) as running:
        try:
            yield Process(running, stamps)
        finally:
            running.kill()


@contextmanager
def many(
    folder: Path, dsn: str, tubes: Sequence[str], *, name: str, more: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of many tubes, whose sinks do nothing; it may not lead yet. Ended in order at the end.

    `more` is added to its configuration.
    """
    each = [_TUBE.format(tube=tube, target="counting:count", enrich="row") for tube in tubes]
    config = "".join([_CONFIG.format(dsn=dsn), *each, more])
    with process(folder, config, name) as running:
        try:
            yield running
        finally:
            running.terminate()


@contextmanager
def process(folder: Path, config: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker with this configuration; its sink may write to `{name}.stamps`. Awaited at the end.

    It serves all that is configured.
    """
    file = folder / f"{name}.toml"
    file.write_text(config)
    with (folder / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(
            [sys.executable, "-m", "pytube", "--config", str(file), "--log-format", "json", "worker"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                "CLIENT_ID": name,
                "BENCH_STAMPS": str(folder / f"{name}.stamps"),
                "PYTHONPATH": str(ROOT),
            },
        )
    try:
        yield running
    finally:
        running.wait()


def leaders(connection: psycopg.Connection, tube: str) -> dict[int, str]:
    """The names of the workers that lead, by partition."""
    rows = connection.execute(
        "SELECT partition, client_id FROM tube_leaders(%s) WHERE leader_id IS NOT NULL", [tube]
    ).fetchall()
    return {int(partition): str(name) for partition, name in rows}


def wait_for(
    condition: Callable[[], bool], what: str, limit: float = START_LIMIT, pause: float = 0.005
) -> None:
    """Until the condition holds; it is asked every `pause` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {limit:g} s: {what}")
        time.sleep(pause)
