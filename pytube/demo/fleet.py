"""The workers: processes as a user starts them, each with its configuration and its log."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

from pytube.demo.failure import DemoFailed, tail
from pytube.demo.folder import Folder
from pytube.demo.settings import TUBE, settings_of
from pytube.demo.source import client_environment
from pytube.embedded.process import ServerProcess

NAMES = ("w1", "w2", "w3")
_STOP_TIMEOUT = 40.0
"""Seconds; a worker's own drain limit is 30."""


class Fleet:
    """Three workers, of which any can be killed and started again."""

    def __init__(self, folder: Folder, *, dsn: str, bootstrap: str | None, election: str) -> None:
        """Write the configurations; nothing runs before `start`."""
        self._folder = folder
        self._running: dict[str, ServerProcess] = {}
        for name in NAMES:
            text = settings_of(name, dsn=dsn, bootstrap=bootstrap, election=election, sink=folder.sink)
            folder.worker_settings(name).write_text(text)

    def start(self, name: str) -> None:
        """Start one worker; its log goes on where it ended."""
        command = [sys.executable, "-m", "pytube", "--log-format", "human"]
        command += ["--config", str(self._folder.worker_settings(name)), "worker", "--tube", TUBE]
        self._running[name] = ServerProcess(
            command,
            log=self._folder.worker_log(name),
            guard_signal=signal.SIGKILL,
            env=client_environment(),
        )

    def kill(self, name: str) -> None:
        """SIGKILL one worker, and wait until it is gone."""
        self._running.pop(name).kill()

    def check(self) -> None:
        """Raise `DemoFailed` when one has ended by itself."""
        for name, process in self._running.items():
            if not process.running:
                raise DemoFailed(
                    f"the worker {name} ended with {process.returncode}; its log ends:\n"
                    f"{tail(self._folder.worker_log(name))}"
                )

    def stop(self) -> dict[str, int]:
        """SIGTERM all at the same time, and wait; their exit codes.

        Raises:
            EmbeddedError: one does not end within its time.
        """

        def stop(name: str) -> None:
            self._running[name].stop(signal.SIGTERM, timeout=_STOP_TIMEOUT, name=f"the worker {name}")

        with ThreadPoolExecutor(len(NAMES)) as pool:
            list(pool.map(stop, self._running))
        codes = {name: process.returncode for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def close(self) -> None:
        """SIGKILL whatever still runs."""
        for process in self._running.values():
            process.kill()
