"""How a command ends: the exit codes, and the sentence and the code for an error."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import click

NOT_WELL: Final = 1
REFUSED: Final = 2
FAILED: Final = 3
INTERNAL: Final = 70
"""`EX_SOFTWARE` of sysexits.h."""
INTERRUPTED: Final = 130
TERMINATED: Final = 143
READER_GONE: Final = 141

EXIT_CODES: Final[dict[str, tuple[str, str]]] = {
    "0": ("done", "done; a check: equal, well, or delivered"),
    "1": (
        "the answer is no: it differs, fails a check, or did not finish in time",
        """`verify`, `reindex compare`, `reindex switch`, `spark reconcile`, `demo`: the copy differs;
        `doctor`, `sink check`: a check fails; `wait`: a timeout, or parked keys; `apply --wait`: a timeout,
        or no worker; `pause`, `outbox park`: still in flight after `--drain`""",
    ),
    "2": (
        "usage, configuration, or permission error; nothing was changed",
        """wrong arguments or configuration, or a missing right; nothing was changed. `backfill start`
        and `resume`: also if the backfill failed, or was canceled or superseded""",
    ),
    "3": (
        "Postgres, Kafka, or a sink is not available, or failed; try again",
        "Postgres, Kafka, or a sink is not available, is busy (a lock), or failed; try again",
    ),
    "4": (
        "the installed SQL does not match this version",
        "the installed SQL doesn't match this version; the message names the command to run",
    ),
    "70": (
        "internal error; rerun with --debug and report it",
        "internal error; rerun with `--debug`, and report it",
    ),
    "130, 143": (
        "interrupted by SIGINT or SIGTERM, or you answered no; a worker: by a second signal",
        """interrupted by SIGINT or SIGTERM, or you answered no to a question. A worker: ended at once by a
        second signal""",
    ),
    "141": ("the reader of the output is gone", "the reader of the output is gone, as `head` is"),
}
"""Each exit code: the line of `pytube --help`, and the cell of the table in docs/cli.md, see `exit_codes`."""

EPILOG: Final = "\b\nExit codes:\n" + "\n".join(
    f"  {code}  {short}" for code, (short, _) in EXIT_CODES.items()
)
"""The end of `pytube --help`."""


def exit_codes() -> list[tuple[str, str]]:
    """The rows of the table in docs/cli.md."""
    return [(code, " ".join(cell.split())) for code, (_, cell) in EXIT_CODES.items()]


@contextmanager
def first_signal(act: Callable[[], object]) -> Iterator[list[int]]:
    """The first SIGINT or SIGTERM calls `act`, a second one ends the process at once; yields the received."""
    received: list[int] = []

    def on_signal(number: int, _: object) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        act()

    # Only a main thread may, and tests call commands in others.
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupted(code: int, more: str = "") -> NoReturn:
    """End the command as a signal asks for; `more` continues the sentence."""
    click.echo(f"pytube: interrupted{more}", err=True)
    click.get_current_context().exit(code)


def ending(error: BaseException, context: click.Context) -> tuple[str, int]:
    """The sentence and the exit code for an error."""
    match error:
        case KeyboardInterrupt():
            return "interrupted", INTERRUPTED
        case click.Abort() if isinstance(error.__context__, EOFError):
            return "a question needs an answer, and stdin has none; --yes answers it", REFUSED
        case click.Abort():
            return "interrupted", INTERRUPTED
    return _ending_of_ours(error, context)


def _ending_of_ours(error: BaseException, context: click.Context) -> tuple[str, int]:
    import psycopg

    from pytube.cli.context import Asked
    from pytube.cli.rights import refusal
    from pytube.db.errors import describe
    from pytube.errors import PytubeError

    if (refused := refusal(error, Asked.of(context))) is not None:
        return refused, REFUSED
    match error:
        case PytubeError():
            return f"{error}{_more(type(error))}", error.exit_code
        case psycopg.Error():
            # Class 22 is about a value and class 42 about the statement: a retry would fail again.
            asked_wrongly = (error.sqlstate or "")[:2] in ("22", "42")
            return f"Postgres refused: {describe(error)}", REFUSED if asked_wrongly else FAILED
        case _:
            return (
                f"internal error ({type(error).__name__}: {error}); rerun with --debug and report it",
                INTERNAL,
            )


def _more(kind: type[Exception]) -> str:
    """The section of the reference; none for kinds that say no more than the message."""
    from pytube import errors

    general = (errors.PytubeError, errors.ConfigError, errors.UsageError)
    has_section = kind not in general and getattr(errors, kind.__name__, None) is kind
    return f"; more: {errors.page(f'errors.md#{kind.__name__.lower()}')}" if has_section else ""
