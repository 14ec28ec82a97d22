"""How long a session is waited for: a server that stays silent is given up like one that is gone.

Keepalives and `tcp_user_timeout` find a network that has lost the server. They don't find a server
whose kernel still acknowledges what a frozen process never reads, nor a proxy in between; and
`statement_timeout` is kept by the server itself.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from pytube.errors import PytubeError

_Answer = TypeVar("_Answer")

STATE_OF_SESSION = """
    SELECT state, state_change::text FROM pg_catalog.pg_stat_activity WHERE pid = %s
"""
"""What another session asks about one that is silent; `is_answer_lost` judges it."""

_LAST_MOMENT = 1.0
"""Seconds that a statement may go on when nobody waits for it any more."""


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time, and the session was cut off."""


def is_answer_lost(before: tuple[Any, ...] | None, now: tuple[Any, ...] | None) -> bool:
    """Whether the server has answered a session that heard nothing.

    It is idle, and has not changed since the look before.

    Args:
        before: the row of `STATE_OF_SESSION` at the look before; None when there was none.
        now: that of this look; None when the server does not know the session.
    """
    return now is not None and now == before and str(now[0]).startswith("idle")


async def answered_within(
    connection: psycopg.AsyncConnection, seconds: float | None, asking: Coroutine[Any, Any, _Answer]
) -> _Answer:
    """Ask the server, and give it so long to answer; then the session is cut off, and of no more use.

    Whoever is cancelled meanwhile gives the server a moment, so that the session stays whole, and
    then cuts it off. (psycopg would ask the server by a second connection to cancel the statement; at
    a server that stays silent that takes ten seconds.) Whether a statement that was cut off has
    committed is not known, as with any lost connection.

    Args:
        connection: who is asked.
        seconds: for all that is asked; None: any.
        asking: uses the connection.

    Raises:
        NoAnswer: the time was over.
    """
    cut = False

    def give_up() -> None:
        nonlocal cut
        cut = True
        shut(connection)

    loop = asyncio.get_running_loop()
    timer = None if seconds is None else loop.call_later(seconds, give_up)
    task = loop.create_task(asking)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(asyncio.CancelledError):  # who is asked to end twice gives it no more time
            await asyncio.wait([task], timeout=_LAST_MOMENT)
        if not task.done():
            shut(connection)
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody is there any more whom it could be told
        raise
    except (psycopg.Error, PytubeError) as error:  # who is asked may have made it one of ours
        if cut:
            raise NoAnswer(f"no answer within {seconds:g} s") from error
        raise
    finally:
        if timer is not None:
            timer.cancel()


def shut(connection: psycopg.AsyncConnection) -> None:
    """Whoever waits for the session sees its end at once; it is still to be closed.

    Who waits for a session that is closed is not woken, and the number of its descriptor is soon another's.
    """
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
