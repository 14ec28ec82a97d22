"""What goes wrong with servers of our own."""

from __future__ import annotations

from pathlib import Path

from pytube.errors import PytubeError

TAIL_LINES = 30


class EmbeddedError(PytubeError):
    """An embedded server can't be had, did not start or did not end; the message says why."""


def with_tail(message: str, log: Path) -> EmbeddedError:
    """The error `message`, with the last lines of the server's log below it."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError as error:
        lines = [f"(the log can't be read: {error})"]
    return EmbeddedError("\n".join([f"{message}; the end of {log}:", *lines]))
