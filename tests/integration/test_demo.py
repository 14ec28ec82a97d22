"""The demonstration, as a user runs it, for a short time; and how it ends when it must."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.helpers import forked
from tests.helpers.database import server_folder
from tests.helpers.waiting import LIMIT, wait_until


class Demo:
    """One run, with its output in a file."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.directory = folder / "demo"
        self._output = folder / "output"
        arguments = ["demo", "--directory", str(self.directory), *options]
        with self._output.open("wb") as output:
            self.process = forked.start("pytube", arguments, environment=os.environ, output=output)
        self._seen: dict[int, psutil.Process] = {}

    @property
    def output(self) -> str:
        return self._output.read_text()

    def until(self, text: str) -> None:
        """Wait until it has printed `text`, and remember the processes that run then."""
        wait_until(lambda: text in self.output or self.process.poll() is not None, what=f"{text!r}")
        assert text in self.output, self.output
        self._seen |= {child.pid: child for child in psutil.Process(self.process.pid).children(True)}

    def worker(self) -> psutil.Process:
        """One of the workers that run."""
        return next(child for child in self._seen.values() if "worker" in child.cmdline())

    def end(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(LIMIT)

    def is_all_gone(self) -> bool:
        """Whether of the processes that were seen none runs."""
        return not any(
            child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in self._seen.values()
        )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(LIMIT)


@pytest.fixture
def folder() -> Iterator[Path]:
    with server_folder() as folder:
        yield folder


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Demo]]:
    """Starts a demo with the given options; it is ended with the test."""
    with ExitStack() as stack:

        def started(*options: str) -> Demo:
            demo = Demo(folder, *options)
            stack.callback(demo.close)
            return demo

        yield started


@pytest.mark.parametrize("election", ["neli", pytest.param("lease", marks=pytest.mark.soak)])
def test_the_copy_is_equal_in_the_end(start: Callable[..., Demo], election: str) -> None:
    demo = start("--seconds", "1", "--election", election)
    demo.until("the load starts")
    assert demo.end() == 0, demo.output
    assert demo.is_all_gone()
    out = demo.output
    assert "EQUAL: all 100,011 rows of the source are at the sink, and nothing else is." in out
    for event in ("SIGKILL: w", "have taken over", "is started again", "leads again", "the tube is empty"):
        assert event in out
    assert re.search(r"take-over +[\d.]+ s after the SIGKILL of w\d", out)
    assert re.search(r"latency overall +p50 .*, p99 .*, worst .* from commit to sink", out)
    assert len(re.findall(r"w\d wrote [1-9]", out)) == 3, out
    seconds = re.findall(r"^ *(\d+) s  +[\d,]+ +[\d,]+ +[\d,]+ .*w1.*w2.*w3", out, re.MULTILINE)
    assert len(seconds) == len(set(seconds)) > 6, "a line for each second"


@pytest.mark.soak
@pytest.mark.parametrize("sink", ["postgres", "redis", "kafka", "opensearch"])
def test_the_copy_in_a_server_is_equal_in_the_end(start: Callable[..., Demo], sink: str) -> None:
    """Differs from the one before in what test_demo_copies.py tries, which `make test` runs."""
    demo = start("--seconds", "1", "--election", "lease", "--sink", sink)
    assert demo.end() == 0, demo.output
    out = demo.output
    assert "EQUAL: all 100,011 rows of the source are at the sink, and nothing else is." in out
    assert re.search(rf"read back from +.*{sink}", out, re.IGNORECASE)
    assert re.search(r"take-over +[\d.]+ s after the SIGKILL of w\d", out)
    assert len(re.findall(r"w\d wrote [1-9]", out)) == 3, out


@pytest.mark.parametrize(
    "options",
    [
        ("--election", "lease"),
        pytest.param((), marks=pytest.mark.soak),
        pytest.param(("--kafka", "real"), marks=pytest.mark.soak),
    ],
)
def test_an_outbox_is_delivered_in_order(start: Callable[..., Demo], options: tuple[str, ...]) -> None:
    demo = start("--outbox", "--seconds", "1", *options)
    assert demo.end() == 0, demo.output
    out = demo.output
    came = re.search(r"COMPLETE AND IN ORDER: all ([\d,]+) committed records came", out)
    assert came is not None
    assert re.search(rf"records +{came[1]} committed, over \d+ keys", out)
    assert re.search(r"[1-9]\d* of them rolled back", out)
    for event in ("SIGKILL: w", "have taken over", "is started again", "leads again"):
        assert event in out
    assert re.search(r"take-over +[\d.]+ s after the SIGKILL of w\d", out)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
def test_a_signal_ends_everything(start: Callable[..., Demo], number: signal.Signals, code: int) -> None:
    demo = start()
    demo.until("three workers start")
    demo.process.send_signal(number)
    assert demo.end() == code, demo.output
    assert demo.is_all_gone()
    assert f"ended by {number.name}; all that was started is ended" in demo.output
    assert "Traceback" not in demo.output


def test_a_worker_that_ends_by_itself_is_named(start: Callable[..., Demo]) -> None:
    demo = start("--election", "lease")
    demo.until("three workers start")
    demo.worker().kill()
    assert demo.end() == 1
    assert demo.is_all_gone()
    assert re.search(r"FAILED: the worker w\d ended with -9; its log ends:", demo.output), demo.output
    assert f"logs are kept in {demo.directory}" in demo.output
    assert "EQUAL" not in demo.output


def test_nothing_outlives_a_demo_that_is_killed(start: Callable[..., Demo]) -> None:
    demo = start()
    demo.until("three workers start")
    demo.process.kill()
    demo.end()
    wait_until(demo.is_all_gone, what="all that it had started is ended")


def test_a_folder_in_use_is_refused(folder: Path, start: Callable[..., Demo]) -> None:
    (folder / "demo").mkdir()
    (folder / "demo" / "thesis.txt").write_text("precious")
    demo = start()
    assert demo.end() == 2
    assert "no demo has left there" in demo.output
    assert (folder / "demo" / "thesis.txt").exists()
