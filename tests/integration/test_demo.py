"""The demonstration, as a user runs it, for a short time; and how it ends when it must."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.helpers import forked
from tests.helpers.database import server_folder
from tests.helpers.waiting import LIMIT, wait_until
from tests.helpers.wheels import build_wheel, make_environment


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


@pytest.mark.parametrize("options", [(), pytest.param(("--kafka", "embedded"), marks=pytest.mark.soak)])
def test_the_copy_is_equal_in_the_end(start: Callable[..., Demo], options: tuple[str, ...]) -> None:
    demo = start("--seconds", "1", *options)
    demo.until("the load starts")
    assert demo.end() == 0, demo.output
    assert demo.is_all_gone()
    out = demo.output
    assert "EQUAL: all 100,011 rows of the source are at the sink, and nothing else is." in out
    for event in ("SIGKILL: w", "have taken over", "is started again", "leads again", "nothing waits"):
        assert event in out
    assert_shows_what_it_saw(out)
    assert re.search(r"commit to copy +half within .*, 99 % within .*, before the kill", out)
    changed = r'.*"abalance": {}, "filler": "{}"'
    for name, value in (("in Postgres", changed.format(0, "")), ("in the copy", changed.format(0, ""))):
        assert re.search(f"{name} +{value}", out), name
    for name in ("in Postgres now", "in the copy now"):
        assert re.search(f"{name} +{changed.format(1000, 'hello')}", out), name
    assert len(re.findall(r"^  .*pytube (?:demo|dev) ", out.partition("Try next")[2], re.MULTILINE)) == 3, out
    busy = re.findall(r"^ *\d+ s  [\d,]+/s delivered", out, re.MULTILINE)  # where the machine is
    assert len(out.splitlines()) - len(busy) <= 40
    assert "\x1b" not in out, "no color without a terminal"


def assert_shows_what_it_saw(out: str) -> None:
    """The take-over, the lag through it, and that all took part."""
    assert re.search(r"take-over +[\d.]+ s from the SIGKILL of w\d", out)
    lag = re.search(r"  lag +([▁▂▃▄▅▆▇█ ]+)\n( +)↑ SIGKILL", out)
    assert lag is not None, out
    assert "█" in lag[1]
    assert re.search(r"a block is [\d.]+ s; ▁ up to \d.*, █ \d", out)
    written = re.search(r"written by (.*);", out)
    assert written is not None
    assert len(re.findall(r"w\d [1-9]", written[1])) == 3, out


@pytest.mark.soak
@pytest.mark.parametrize("sink", ["postgres", "redis", "kafka", "opensearch"])
def test_the_copy_in_a_server_is_equal_in_the_end(start: Callable[..., Demo], sink: str) -> None:
    """Differs from the one before in what test_demo_copies.py tries, which `make test` runs."""
    demo = start("--seconds", "1", "--sink", sink)
    assert demo.end() == 0, demo.output
    out = demo.output
    assert "EQUAL: all 100,011 rows of the source are at the sink, and nothing else is." in out
    assert re.search(rf"compared +100,011 rows of the source with .*{sink}", out, re.IGNORECASE)
    assert_shows_what_it_saw(out)


@pytest.mark.soak
def test_an_installed_package_needs_no_checkout(folder: Path, tmp_path: Path) -> None:
    """From the wheel, in an environment without the checkout, in another folder."""
    make_environment(tmp_path / "env")
    wheel = build_wheel(tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    install = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--quiet", "--no-deps"]
    subprocess.run([*install, "--python", str(python), str(wheel)], check=True)
    where = "import pytube; print(pytube.__file__)"
    found = subprocess.run([python, "-c", where], cwd=folder, check=True, capture_output=True, text=True)
    assert found.stdout.startswith(str(tmp_path / "env"))
    command = [str(python.with_name("pytube")), "demo", "--seconds", "1"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EQUAL: all 100,011 rows" in done.stdout
    assert f"{python.with_name('pytube')} dev postgres" in done.stdout


def on_terminal(program: str) -> str:
    """What a program of Python sends to a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "wb") as output, os.fdopen(ours, "rb") as terminal:
        command = [sys.executable, "-c", program]
        subprocess.run(command, stdout=output, check=True, env={**os.environ, "TERM": "xterm"})
        return os.read(terminal.fileno(), 65536).decode()


@pytest.mark.parametrize("plain", [True, False])
def test_color_on_a_terminal_unless_asked_for_none(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that says how things stand is replaced there."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    if plain:
        monkeypatch.setenv("NO_COLOR", "1")
    acts = "screen = Screen(); screen.now(Text('now', 'green')); screen.step('then', 'bold red')"
    out = on_terminal(f"from rich.text import Text; from pytube.demo.screen import Screen; {acts}")
    assert "now" in out
    assert "\r\x1b[2K" in out
    assert bool(re.search(r"\x1b\[[\d;]*3\dm", out)) is not plain


@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("--election", "neli"), marks=pytest.mark.soak),
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
    assert re.search(r"take-over +[\d.]+ s from the SIGKILL of w\d", out)
    assert re.search(r"  lag +[▁▂▃▄▅▆▇ ]*█", out)


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
    demo = start()
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
