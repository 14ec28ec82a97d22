"""How long a session is waited for: a server that stays silent is given up like one that is gone.

Keepalives and `tcp_user_timeout` find a network that has lost the server. They don't find a server
whose kernel still acknowledges what a frozen process never reads, nor a proxy in between; and
`statement_timeout` is kept by the server itself.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time, and the session was cut off."""


@contextmanager
def answered_within(connection: psycopg.AsyncConnection, seconds: float | None) -> Iterator[None]:
    """Within it the server has so long to answer; then the session is cut off, and of no more use.

    Whether a statement that was cut off has committed is not known, as with any lost connection.

    Args:
        connection: who is waited for.
        seconds: for all that is sent within; None: for ever.

    Raises:
        NoAnswer: the time was over.
    """
    if seconds is None:
        yield
        return
    cut = False

    def give_up() -> None:
        nonlocal cut
        cut = True
        _shut(connection)

    timer = asyncio.get_running_loop().call_later(seconds, give_up)
    try:
        yield
    except psycopg.Error as error:
        if not cut:
            raise
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error  # else whoever ends us would wait for ever
        raise NoAnswer(f"no answer within {seconds:g} s") from error
    finally:
        timer.cancel()


def _shut(connection: psycopg.AsyncConnection) -> None:
    """Whoever waits for the session sees its end at once."""
    # Not closed: the descriptor's number could be given to another session while somebody still waits.
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
