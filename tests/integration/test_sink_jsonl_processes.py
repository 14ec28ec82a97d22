"""The sink `jsonl` among real processes: killed, stopped, out of space, on one standard output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytube.errors import SinkUnavailable
from pytube.sinks.jsonl import JsonlSink, Replay, replay
from pytube.testing import batch
from tests.helpers.database import ROOT
from tests.helpers.forked import Program, start
from tests.helpers.waiting import LIMIT, wait_until

PROGRAM = "tests.helpers.jsonl_writer"


class Writer:
    """A process that writes rounds of documents, and tells each round that was answered."""

    def __init__(
        self, path: Path | str, shard: int, rounds: int, shape: tuple[int, int], log: Path, stdout: Any = None
    ) -> None:
        self.shard = shard
        self.documents, size = shape
        self.log = log / f"log-{shard}"
        arguments = [str(path), *map(str, (shard, rounds, self.documents, size))]
        with self.log.open("wb") as log_file:
            self.process: Program
            if stdout is None:
                self.process = start(PROGRAM, arguments, environment=os.environ, output=log_file)
            else:  # with an output of its own, which a fork of the zygote has not
                command = [sys.executable, "-m", PROGRAM, *arguments]
                self.process = subprocess.Popen(command, stderr=log_file, stdout=stdout, cwd=ROOT)

    def kill(self) -> None:
        """End it, wherever it is in its write."""
        self.process.kill()
        self.process.wait()

    @property
    def answered(self) -> int:
        """The last round that the sink answered."""
        told = [line for line in self.log.read_text().split("\n")[:-1] if line.isdigit()]
        return int(told[-1]) if told else 0


@pytest.fixture
def writers() -> Iterator[list[Writer]]:
    started: list[Writer] = []
    yield started
    for writer in started:
        writer.kill()


def check_lines(path: Path) -> tuple[int, int]:
    """Whole and torn lines; fails when a line is glued to another."""
    whole = torn = 0
    for raw in path.read_bytes().split(b"\n"):
        try:
            json.loads(raw)
            whole += 1
        except ValueError:
            torn += bool(raw)
        assert raw.count(b'{"tube":') <= 1, f"two lines in one: {raw[:80]!r} … {raw[-80:]!r}"
    return whole, torn


def test_writers_killed_in_the_middle_of_their_writes(tmp_path: Path, writers: list[Writer]) -> None:
    path = tmp_path / "shared.jsonl"
    steady = Writer(path, 0, 1_000_000, (5, 100), tmp_path)
    writers.append(steady)
    for kills in range(50):
        # Three at once want the lock all the time: one of them is likely to be writing when it is killed.
        victims = [Writer(path, 1 + 3 * kills + at, 1_000_000, (20, 100_000), tmp_path) for at in range(3)]
        writers += victims
        for victim in victims:
            wait_for_round(victim, 1)
        for victim in victims:
            victim.kill()
        wait_for_round(steady, steady.answered + 2)
        if kills >= 4 and check_lines(path)[1] > 0:
            break
    steady.kill()
    whole, torn = check_lines(path)
    assert torn >= 1, "no kill hit a write"
    reader = Replay([path])
    reader.finish()
    assert (reader.applied, reader.torn, reader.stale) == (whole, torn, 0)
    for writer in writers:
        rounds = [line.token.counter for key, line in reader.lines.items() if key[1] == writer.shard]
        assert len(rounds) == writer.documents
        assert min(rounds) >= writer.answered, "what was answered is in the file"


def wait_for_round(writer: Writer, round_: int) -> None:
    """Wait until the sink has answered that round of the writer."""
    wait_until(lambda: writer.answered >= round_, what=f"round {round_} of {writer.shard}")


def test_disk_that_fills_up_in_the_middle_of_a_write(tmp_path: Path) -> None:
    path = tmp_path / "limited.jsonl"
    program = """
import asyncio, resource, sys
from pytube.errors import SinkUnavailable
from pytube.sinks.jsonl import JsonlSink
from pytube.testing import batch

async def main(path):
    sink = JsonlSink(path)
    await sink.open()
    await sink.send(batch({1: {"v": "before"}}))
    # The kernel writes up to the limit and fails after it, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
    try:
        await sink.send(batch({2: {"text": "x" * 10_000}}))
    except SinkUnavailable as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await sink.send(batch({3: {"v": "after"}}))

asyncio.run(main(sys.argv[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert "File too large; nothing of the batch is in it" in done.stdout
    assert [key[2] for key in replay([path])] == [1, 3]
    assert check_lines(path) == (2, 0)


STOPPING = """
import asyncio, signal, sys, threading, time
from pytube.errors import SinkUnavailable
from pytube.sinks import jsonl
from pytube.testing import batch

def stop_before(function):
    def stopping(*args):
        # To this very thread: sent to the process, it may run on for a while.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return function(*args)
    return stopping

async def main(path, where):
    sink = jsonl.JsonlSink(path)
    await sink.open()
    if where == "before the lock":
        jsonl.encode = stop_before(jsonl.encode)
    else:  # the block is made under the lock, after the time was checked
        sink._file._write = stop_before(sink._file._write)
    try:
        print(await sink.send(batch({1: {}}, token=(1, 1), send_before=time.monotonic() + 1.0)))
    except SinkUnavailable as error:
        print(error)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def stopped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A writer that has stopped itself, and whose right to send has lapsed meanwhile."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPING, str(tmp_path / "x.jsonl"), request.param],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        end = time.monotonic() + 1.05
        wait_until(lambda: time.monotonic() > end, what="send_before has passed")
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("stopped", ["before the lock"], indirect=True)
async def test_stopped_before_its_write_it_writes_nothing(
    stopped: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    successor = JsonlSink(str(path))
    await successor.open()
    await successor.send(batch({1: {}}, token=(2, 1)))
    os.kill(stopped.pid, signal.SIGCONT)
    said, _ = stopped.communicate(timeout=LIMIT)
    assert "nothing was written, the right to send had lapsed" in said
    assert [line.token.epoch for line in replay([path]).values()] == [2]
    assert check_lines(path) == (1, 0)


@pytest.mark.parametrize("stopped", ["within the write"], indirect=True)
async def test_stopped_within_its_write_it_keeps_others_out(
    stopped: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    successor = JsonlSink(str(path))
    await successor.open()
    with pytest.raises(SinkUnavailable, match="while it waited for the lock"):
        await successor.send(batch({1: {}}, token=(2, 1), send_before=time.monotonic() + 0.1))
    os.kill(stopped.pid, signal.SIGCONT)
    said, _ = stopped.communicate(timeout=LIMIT)
    assert said == "[Ok()]\n"
    await successor.send(batch({1: {}}, token=(2, 2)))
    reader = Replay([path], compare=False)
    reader.finish()
    assert (reader.applied, reader.stale) == (2, 0), "its line comes before its successor's"


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_processes_that_share_one_standard_output(tmp_path: Path, writers: list[Writer], kind: str) -> None:
    path = tmp_path / "out.jsonl"
    with path.open("wb") as out:
        reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=out) if kind == "pipe" else None
        target = out if reader is None else reader.stdin
        writers += [Writer("-", shard, 20, (300, 400), tmp_path, target) for shard in (1, 2, 3)]
        for writer in writers:
            assert writer.process.wait(timeout=LIMIT) == 0
        if reader is not None:
            reader.communicate(timeout=LIMIT)
    assert check_lines(path)[1] == 0
    held = replay([path])
    assert len(held) == 900
    assert {line.token.counter for line in held.values()} == {20}


def test_a_file_that_this_user_may_not_write(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o755)
    program = """
import asyncio, os, sys
from pytube.errors import ConfigError
from pytube.sinks.jsonl import JsonlSink

if os.geteuid() == 0:
    os.seteuid(65534)  # root may write anywhere
try:
    asyncio.run(JsonlSink(sys.argv[1]).open())
except ConfigError as error:
    print(error)
"""
    locked.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", program, str(locked / "x.jsonl")],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert "Permission denied; give a file that this user can write to" in done.stdout
