"""What ends a demonstration early."""

from __future__ import annotations

from pathlib import Path

from pytube.errors import PytubeError

_TAIL_LINES = 12


class DemoFailed(PytubeError):
    """Something did not happen, or ended that should not; the message says what."""


class Interrupted(BaseException):
    """A signal asked the demonstration to end. As KeyboardInterrupt, it is no error of anybody's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def tail(log: Path) -> str:
    """The last lines of a log, indented, for a message; a sentence when there are none."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError as error:
        return f"    ({log} can't be read: {error})"
    return "\n".join(f"    {line}" for line in lines) or f"    ({log} is empty)"
