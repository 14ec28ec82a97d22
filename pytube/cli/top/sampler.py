"""A thread that takes samples, so that a silent database stops neither the screen nor its end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pytube.health.fleet import FleetSample
from pytube.health.watcher import FleetWatcher


class Sampler:
    """Takes a sample every few moments, and hands each over."""

    def __init__(
        self, watcher: FleetWatcher, interval: float, hand_over: Callable[[FleetSample], object]
    ) -> None:
        """Begins nothing yet; `hand_over` is called in the thread."""
        self._watcher = watcher
        self._interval = interval
        self._hand_over = hand_over
        self._wanted = threading.Event()
        self._stopped = False
        # A daemon: a database that stays silent must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="pytube-top", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def sample_now(self) -> None:
        """Don't wait for the next turn: something was done whose effect is to be seen."""
        self._wanted.set()

    def stop(self, timeout: float = 0.5) -> None:
        """End; a sample that takes longer is left to itself."""
        self._stopped = True
        self._wanted.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopped:
            self._wanted.clear()
            sample = self._watcher.sample()
            if not self._stopped:
                self._hand_over(sample)
                self._wanted.wait(self._interval)
        self._watcher.close()
