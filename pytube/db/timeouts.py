"""Client-side timeouts: a session whose server stays silent is dropped like one whose server is gone.

Keepalives and `tcp_user_timeout` detect a network that has lost the server. They don't detect a server
whose kernel still acknowledges data that a frozen process never reads, nor a proxy in between; and
`statement_timeout` is enforced by the server itself.
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
"""Run by another session about one that is silent; `is_answer_lost` interprets the row."""

_LAST_MOMENT = 1.0
"""Seconds that a statement may continue after its caller was cancelled."""


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time, and the session was cut off."""


def is_answer_lost(before: tuple[Any, ...] | None, now: tuple[Any, ...] | None) -> bool:
    """Whether an answer was lost on its way: the session is idle, and unchanged since the last check.

    Args:
        before: the row of `STATE_OF_SESSION` at the last check; None when there was none.
        now: the row of this check; None when the server does not know the session.
    """
    return now is not None and now == before and str(now[0]).startswith("idle")


async def wait_for_answer(
    connection: psycopg.AsyncConnection, seconds: float | None, asking: Coroutine[Any, Any, _Answer]
) -> _Answer:
    """Ask the server, and cut the session off if it does not answer in time; it is then of no more use.

    A caller that is cancelled meanwhile gives the server a moment, so that the session stays usable, and
    then cuts it off. (psycopg would ask the server by a second connection to cancel the statement; at
    a server that stays silent that takes ten seconds.) Whether a statement that was cut off has
    committed is not known, as with any lost connection.

    Args:
        connection: the session.
        seconds: limit for the whole coroutine; None: no limit.
        asking: uses the connection.

    Raises:
        NoAnswer: the time limit was reached.
    """
    cut = False

    def give_up() -> None:
        nonlocal cut
        cut = True
        shut_down(connection)

    loop = asyncio.get_running_loop()
    timer = None if seconds is None else loop.call_later(seconds, give_up)
    task = loop.create_task(asking)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(asyncio.CancelledError):  # a second cancellation gives it no more time
            await asyncio.wait([task], timeout=_LAST_MOMENT)
        if not task.done():
            shut_down(connection)
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it
        raise
    except (psycopg.Error, PytubeError) as error:  # the coroutine may have translated it
        if cut:
            raise NoAnswer(f"no answer within {seconds:g} s") from error
        raise
    finally:
        if timer is not None:
            timer.cancel()


def shut_down(connection: psycopg.AsyncConnection) -> None:
    """End the socket, so that tasks that wait for the session wake at once; close the session afterwards.

    Closing alone would not wake a waiter, and the descriptor's number would soon belong to another file.
    """
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
