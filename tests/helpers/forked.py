"""Programs in processes of their own that need not import pytube again.

A zygote has pytube imported and forks for each program. That saves most of the time that a short-lived
worker costs on a machine with few cores. A program is a module with a command line, as for `python -m`.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Self

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = (
    *("pytube.cli.program", "pytube.cli.worker", "pytube.worker", "tests.helpers.armed"),
    # What most workers import when they need it.
    *("pytube.election.neli", "pytube.sinks.callable", "pytube.sinks.jsonl"),
)
_LARGEST = 1 << 18
"""Bytes of a request: an environment, mostly."""


class Forked:
    """A process that the zygote has forked; its interface is that of `subprocess.Popen`, as far as needed."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self.pid = pid
        self.returncode: int | Any = None  # as of `subprocess.Popen`: who asks has waited for its end
        self._zygote = zygote

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it lives."""
        if self.returncode is None:
            self.returncode = self._zygote.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises `subprocess.TimeoutExpired`."""
        if (code := self.poll()) is None:
            ended = os.pidfd_open(self.pid)  # it is no child of ours, but this tells of any process
            try:
                select.select([ended], [], [], timeout)
            finally:
                os.close(ended)
            if (code := self.poll()) is None:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, which: int) -> None:
        """Send a signal, unless it is over. Its pid is its own until `poll` has seen its end."""
        if self.poll() is None:
            os.kill(self.pid, which)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Piped(Forked):
    """A process whose output goes to pipes, as text."""

    def __init__(self, zygote: Zygote, pid: int, out: int, err: int) -> None:
        super().__init__(zygote, pid)
        self.stdout, self.stderr = os.fdopen(out), os.fdopen(err)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it still writes to both, until its end. Raises `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with ThreadPoolExecutor(2) as readers:
            read = [readers.submit(_rest, file) for file in (self.stdout, self.stderr)]
            try:
                for each in read:
                    each.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                self.kill()  # or its pipes would be read for ever
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from None
        self.wait(timeout)
        return read[0].result(), read[1].result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """As of `subprocess.Popen`: wait for its end."""
        self.stdout.close()
        self.stderr.close()
        self.wait()


def _rest(file: IO[str]) -> str:
    if file.closed:
        return ""
    with file:
        return file.read()


class Zygote:
    """The process that forks, and knows how its children ended."""

    def __init__(self, preloaded: Sequence[str] = PRELOADED, *, forgets: Sequence[str] = ()) -> None:
        """Starts it.

        Args:
            preloaded: the modules that its children need not import.
            forgets: packages that its children import anew all the same, e.g. from another folder.
        """
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, *(["-B"] if forgets else []), "-m", "tests.helpers.forked"),
                    *(str(other.fileno()), ",".join(preloaded), ",".join(forgets)),
                ],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
            )

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        output: IO[bytes],
        folder: Path | None = None,
    ) -> Forked:
        """Run a module as `python -m` does, in a folder or here; stdout and stderr go to `output`."""
        request = _request(module, arguments, environment, folder)
        return Forked(self, self.ask(request, [output.fileno()]))

    def start_piped(self, module: str, arguments: Sequence[str], *, environment: Mapping[str, str]) -> Piped:
        """As `start`, here, with a pipe each for stdout and stderr."""
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        try:
            pid = self.ask(_request(module, arguments, environment, None), [its_out, its_err])
        finally:
            os.close(its_out)
            os.close(its_err)
        return Piped(self, pid, out, err)

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> Any:
        """Its answer to a request."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            return json.loads(self._socket.recv(_LARGEST))

    def close(self) -> None:
        """End it; its children go on."""
        self._socket.close()
        self._process.wait()


def _request(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None
) -> dict[str, Any]:
    return {
        "module": module,
        "arguments": list(arguments),
        "environment": dict(environment),
        "directory": str(folder or Path.cwd()),
    }


Program = Forked | subprocess.Popen[bytes]

_zygotes: dict[int, Zygote] = {}


def start(
    module: str, arguments: Sequence[str], *, environment: Mapping[str, str], output: IO[bytes]
) -> Program:
    """As `Zygote.start`, by the one zygote of this process; by a real start where the loader has to act."""
    if "LD_PRELOAD" in environment:
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    return _zygote().start(module, arguments, environment=environment, output=output)


def start_piped(module: str, arguments: Sequence[str], *, environment: Mapping[str, str]) -> Piped:
    """As `Zygote.start_piped`, by the one zygote of this process."""
    return _zygote().start_piped(module, arguments, environment=environment)


def _zygote() -> Zygote:
    zygote = _zygotes.get(os.getpid())
    if zygote is None:
        zygote = _zygotes[os.getpid()] = Zygote()
        atexit.register(zygote.close)
    return zygote


# --- within the zygote ---------------------------------------------------------------------------------


def main(descriptor: int, preloaded: Sequence[str], forgets: Sequence[str]) -> None:
    """Answer requests until the other end is closed; in a child, be the program that was asked for."""
    for name in preloaded:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in forgets]:
        del sys.modules[name]
    gc.freeze()  # or each child would copy all memory, page by page, as it ends
    with socket.socket(fileno=descriptor) as connection:
        child = _serve(connection)
    if child is not None:
        _run(*child)


def _serve(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """In a child: the request, and files for its stdout and stderr, or one for both. At the end: None."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _LARGEST, 2)
        if not message:
            return None
        request = json.loads(message)
        if "poll" in request:
            answer = _exit_code(request["poll"])
        else:
            answer = os.fork()
            if answer == 0:
                return request, list(descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        connection.send(json.dumps(answer).encode())


def _exit_code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _run(request: dict[str, Any], outputs: list[int]) -> None:
    os.dup2(outputs[0], 1)
    os.dup2(outputs[-1], 2)
    for output in outputs:
        os.close(output)
    os.chdir(request["directory"])
    if "hypothesis" in sys.modules:  # it has made up its mind where the zygote was started
        sys.modules["hypothesis.configuration"].set_hypothesis_home_dir(Path.cwd() / ".hypothesis")
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.argv[1:] = request["arguments"]
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        _end(ended.code)
        raise
    _end(None)


def _end(code: object) -> None:
    """End as Python does, without taking all modules apart: that copies their memory, for 28 ms of CPU.

    It returns where Python has more to say: an exit with a text, or an output that nobody reads any more.
    """
    if not isinstance(code, int | None):
        return
    threading._shutdown()  # type: ignore[attr-defined] # it waits for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    os._exit(code or 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3].split(","))
