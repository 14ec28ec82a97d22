"""Signals that ask the demonstration to end: the first unwinds it, so that everything is ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pytube.demo.failure import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` where the program is when one of the signals comes; once.

    Later ones are ignored: the end is under way, and it is short. Outside of the main thread,
    where Python hears no signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal heard
        if not heard:
            heard = True
            raise Interrupted(number)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
