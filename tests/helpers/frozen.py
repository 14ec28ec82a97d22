"""Processes that stand still."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.waiting import wait_until


def freeze(pid: int) -> None:
    """Stop a process; returns when all its threads have stopped, which SIGSTOP alone does not wait for."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path("/proc", str(pid), "task")
    try:
        wait_until(lambda: all(map(_is_stopped, threads.iterdir())), what=f"process {pid} has stopped")
    except BaseException:
        thaw(pid)
        raise


def _is_stopped(thread: Path) -> bool:
    try:
        state = (thread / "stat").read_text().rpartition(")")[2]  # behind its name, which may hold anything
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return True
    return state.lstrip().startswith("T")


def thaw(pid: int) -> None:
    """Let it go on."""
    os.kill(pid, signal.SIGCONT)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process stands still."""
    freeze(pid)
    try:
        yield
    finally:
        thaw(pid)
