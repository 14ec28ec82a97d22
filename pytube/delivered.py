"""Waits until committed changes are at the sinks: "read your writes" for readers of the copy.

sql/pods/wait.sql says how the tube reports it, and why nothing is missed.

A change may wait in a companion of the tube (sql/tubes/documents.sql), until a worker has touched the
documents that it leads to in the tube. These touches have later numbers. So the companions are waited for
first, and the tube up to a number that is read then.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from pydantic import SecretStr

from pytube.counts import is_or_are, say_count
from pytube.db.connect import connect_async, wait_for_answer
from pytube.db.errors import describe, translated
from pytube.errors import DatabaseUnavailable, KeysParked, StatementFailed, UsageError, WaitTimeout

_ANSWER_TIMEOUT = 10.0
_LOCK_TIMEOUT = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0
"""Seconds between two looks while no notification comes. Most do come; but pods also leave a tube without a
purge, and a pooler may lose notifications."""
_LEAST_PAUSE = 0.002
"""Seconds between two looks, so that a tube with hundreds of purges a second is not asked at each."""
_SETTLE_PAUSE = 0.02
_PARKED_MOST = 1000
"""Parked keys of a tube that are counted."""

_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")

IS_STANDBY: LiteralString = "SELECT pg_catalog.pg_is_in_recovery()"
DRAWN: LiteralString = "SELECT tube_settle_seq()"
WRITTEN: LiteralString = """
    SELECT pg_catalog.pg_current_wal_insert_lsn() >= %(lsn)s::pg_lsn,
        pg_catalog.pg_current_wal_insert_lsn()::text
"""
COMPANIONS: LiteralString = "SELECT c FROM tube_companions(%(tube)s) AS c"
HOLDERS: LiteralString = "SELECT tube_settle_holders(%(tube)s)"
ARE_GONE: LiteralString = "SELECT tube_settle_left(%(tube)s, %(holders)s)"
LEFT: LiteralString = "SELECT partition, partitions, least_seq FROM tube_undelivered(%(tube)s, %(seq)s)"
CHANNEL: LiteralString = "SELECT tube_delivered_channel(%(tube)s)"
WATCH: LiteralString = "SELECT tube_delivered_watch(%(tube)s)"
PARKED: LiteralString = "SELECT parked, shard, id FROM tube_delivered_parked(%(tube)s)"
LEADERS: LiteralString = """
    SELECT partition, client_id, lost, sink_down, source_down FROM tube_leaders(%(tube)s)
"""
PAUSES: LiteralString = "SELECT partition, reason FROM tube_pause_list(%(tube)s)"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of a wait."""

    tubes: tuple[str, ...]
    seq: int
    """All touches up to it have left the tubes and their companions, with the touches that they led to."""
    parked: int
    """Keys that are parked in these tubes or their companions, so that documents are not at the sink; at most
    1000 of each."""
    seconds: float


def _is_number(text: str) -> bool:
    """Whether it is a natural `bigint`; anybody may notify, and int() takes less than isdigit() does."""
    return text.isascii() and text.isdigit() and len(text) < 20


def wait(
    tubes: str | Sequence[str],
    *,
    dsn: str | SecretStr,
    seq: int | None = None,
    lsn: str | None = None,
    timeout: float | None = 60.0,
    ignore_parked: bool = False,
    schema: str = "tube",
) -> Delivered:
    """As `wait_async`, for callers without an event loop."""
    return asyncio.run(
        wait_async(
            tubes, dsn=dsn, seq=seq, lsn=lsn, timeout=timeout, ignore_parked=ignore_parked, schema=schema
        )
    )


async def wait_async(
    tubes: str | Sequence[str],
    *,
    dsn: str | SecretStr,
    seq: int | None = None,
    lsn: str | None = None,
    timeout: float | None = 60.0,
    ignore_parked: bool = False,
    schema: str = "tube",
) -> Delivered:
    """Wait until every change committed before this call is at the sinks of these tubes.

    It takes one session of the database for as long as it waits.

    Args:
        tubes: one or more.
        dsn: the primary. The role needs to be a member of tube_writer, tube_worker or tube_monitor.
        seq: wait for all touches up to this seq instead, also of transactions that have not committed yet.
        lsn: wait for all transactions whose commits lie before this position of the WAL instead.
        timeout: seconds to wait at most; None: for ever.
        ignore_parked: return also while keys are parked, whose documents are not at the sink.
        schema: where pytube's SQL is.

    Raises:
        WaitTimeout: after `timeout`; the message says which partitions are behind, and why, if that is known.
        KeysParked: the touches have left the tubes, but keys are parked.
        UnknownTube: there is no such tube.
        UsageError: the database is a standby; seq and lsn are both given, or were not reached yet.
        DatabaseUnavailable: Postgres can't be reached.
    """
    names = (tubes,) if isinstance(tubes, str) else tuple(dict.fromkeys(tubes))
    if not names:
        raise UsageError("wait for which tube? Name at least one")
    if seq is not None and lsn is not None:
        raise UsageError("wait for a seq or for an LSN, not for both")
    if lsn is not None and not _LSN.fullmatch(lsn):
        raise UsageError(
            f"{lsn!r} is not a valid LSN; expected one as pg_current_wal_lsn() returns: 16/B374D848"
        )
    began = time.monotonic()
    connection = await connect_async(
        dsn, schema, "pytube wait", lock_timeout=_LOCK_TIMEOUT, prepare_threshold=None
    )
    try:
        waiter = Waiter(connection, names)
        ends = float("inf") if timeout is None else began + timeout
        with translated():
            target = await waiter.begin(seq, lsn, ends)
            await waiter.wait_for(target, ends)
            parked = await waiter.parked()
    except psycopg.Error as error:
        raise StatementFailed(f"Postgres refused: {describe(error)}") from error
    finally:
        await connection.close()
    if parked and not ignore_parked:
        raise KeysParked(_of_parked(parked))
    count = sum(number for _, number, *_ in parked)
    return Delivered(names, target, count, time.monotonic() - began)


@dataclass(slots=True)
class _Behind:
    """The work that is left of one tube."""

    up_to: int
    """The seq that is waited for."""
    partitions: int
    seqs: dict[int, int] = field(default_factory=dict)
    """The least seq of each partition that is behind."""


class Waiter:
    """Waits in one session, which is its own; for one task at a time."""

    def __init__(self, connection: psycopg.AsyncConnection, tubes: Sequence[str]) -> None:
        """`connection` has pytube's schema in its search path."""
        self._connection = connection
        self._tubes = tubes
        self._companions: dict[str, str] = {}
        """By their names, the tubes that they belong to."""
        self._of_channel: dict[str, str] = {}
        self._behind: dict[str, _Behind] = {}

    async def begin(self, seq: int | None = None, lsn: str | None = None, ends: float = float("inf")) -> int:
        """The seq to wait for. Both None: that of all that was committed before this call."""
        if await self._value(IS_STANDBY):
            raise UsageError("this server is a standby, where deliveries show late; connect to the primary")
        for tube in self._tubes:
            for (companion,) in await self._rows(COMPANIONS, {"tube": tube}):
                self._companions[companion] = tube
        drawn = int(await self._value(DRAWN))
        if seq is None and lsn is None:
            return drawn
        if seq is not None and seq > drawn:
            raise UsageError(
                f"seq {seq} was not drawn yet: the sequence is at {drawn}; wait for that, or later"
            )
        if lsn is not None:
            ((is_written, now),) = await self._rows(WRITTEN, {"lsn": lsn})
            if not is_written:
                raise UsageError(f"LSN {lsn} was not written yet: this server is at {now}")
        # A commit that is in the WAL may not be visible yet (it waits for a standby), and a number that was
        # drawn may be committed later. A session that may still do either holds the tube's table.
        await self._settle(ends)
        return drawn if seq is None else seq

    async def wait_for(self, seq: int, ends: float) -> None:
        """Return when no touch up to `seq` is left, nor a touch that it led to; `begin` was called before.

        Raises:
            WaitTimeout: at `ends`, of `time.monotonic()`.
        """
        targets = dict.fromkeys(self._tubes, seq)
        if self._companions:
            await self._drained(dict.fromkeys(self._companions, seq), ends)
            # Purges there had committed their touches before.
            targets |= dict.fromkeys(self._companions.values(), int(await self._value(DRAWN)))
        await self._drained(targets, ends)

    async def _drained(self, targets: Mapping[str, int], ends: float) -> None:
        """Return when each of some tubes has no touch left up to its seq."""
        await self._look(targets)
        if self._behind:
            await self._watch(targets)
            await self._look(targets)
        pause = _FIRST_PAUSE
        while self._behind:
            left = ends - time.monotonic()
            if left <= 0:
                raise WaitTimeout(await self._why())
            asked = time.monotonic()
            told = await self._notified(min(pause, left))
            pause = _FIRST_PAUSE if told else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(max(0.0, _LEAST_PAUSE - (time.monotonic() - asked)))
            await self._look({tube: targets[tube] for tube in self._behind})

    async def parked(self) -> list[tuple[str, int, int, str]]:
        """Of each tube and companion that has parked keys: its name, how many, and shard and id of one."""
        found = []
        for tube in dict.fromkeys([*self._tubes, *self._companions]):
            for count, shard, key in await self._rows(PARKED, {"tube": tube}):
                found.append((tube, count, shard, key))
        return found

    async def _settle(self, ends: float) -> None:
        """Wait until everyone who may have drawn a number so far has committed or rolled back."""
        for tube in dict.fromkeys([*self._tubes, *self._companions]):
            holders = await self._value(HOLDERS, {"tube": tube})
            while holders and not await self._value(ARE_GONE, {"tube": tube, "holders": holders}):
                if time.monotonic() >= ends:
                    raise WaitTimeout(
                        f"{say_count(len(holders), 'transaction')} that wrote to tube {tube!r} "
                        f"{is_or_are(len(holders))} still open; end them, or wait only for changes "
                        "committed by now"
                    )
                await asyncio.sleep(_SETTLE_PAUSE)

    async def _watch(self, tubes: Iterable[str]) -> None:
        """Have purges notify us."""
        for tube in tubes:
            channel = str(await self._value(CHANNEL, {"tube": tube}))
            self._of_channel[channel] = tube
            try:
                await self._rows(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                await self._rows(WATCH, {"tube": tube})
            except psycopg.errors.LockNotAvailable:
                continue  # a purge hangs; then we look now and then

    async def _look(self, targets: Mapping[str, int]) -> None:
        for tube, seq in targets.items():
            rows = await self._rows(LEFT, {"tube": tube, "seq": seq})
            self._behind.pop(tube, None)
            if rows:
                self._behind[tube] = _Behind(seq, rows[0][1], {row[0]: row[2] for row in rows})

    async def _notified(self, pause: float) -> bool:
        """Wait for a notification by which a tube may be done, for `pause` seconds at most."""
        deadline = time.monotonic() + pause
        while (left := deadline - time.monotonic()) > 0:
            heard = False
            async for notification in self._connection.notifies(timeout=left, stop_after=1):
                heard = True
                if self._may_be_done(notification):
                    return True
            if not heard:
                return False
        return False

    def _may_be_done(self, notification: psycopg.Notify) -> bool:
        """Note what a purge says of its partition; whether its tube is worth a look."""
        behind = self._behind.get(self._of_channel.get(notification.channel, ""))
        numbers = notification.payload.split()
        if behind is None or len(numbers) != 3 or not all(map(_is_number, numbers)):
            return False
        partitions, partition, least = map(int, numbers)
        if partitions != behind.partitions:
            return True  # the tube was repartitioned
        if least and least <= behind.up_to:
            behind.seqs[partition] = least
        else:
            behind.seqs.pop(partition, None)
        return not behind.seqs

    async def _why(self) -> str:
        """One sentence for each tube that is behind."""
        sentences = []
        for tube, behind in self._behind.items():
            try:
                leaders = {row[0]: row[1:] for row in await self._rows(LEADERS, {"tube": tube})}
                pauses = {row[0]: row[1] for row in await self._rows(PAUSES, {"tube": tube})}
                parts = [
                    _state(partition, leaders.get(partition), pauses.get(partition))
                    for partition in sorted(behind.seqs)
                ]
            except psycopg.errors.InsufficientPrivilege:  # a writer's role
                parts = [str(partition) for partition in sorted(behind.seqs)]
            least, count = min(behind.seqs.values()), behind.partitions
            main = self._companions.get(tube)
            whose = "" if main is None else f", a companion of tube {main!r},"
            sentences.append(
                f"tube {tube!r}{whose} still holds touches up to seq {behind.up_to}, "
                f"the first with seq {least}, in {len(parts)} of {count} partitions: {'; '.join(parts[:5])}"
                + ("; …" if len(parts) > 5 else "")
            )
        return ". ".join(sentences)

    async def _value(self, statement: LiteralString, arguments: dict[str, Any] | None = None) -> Any:
        return (await self._rows(statement, arguments))[0][0]

    async def _rows(
        self, statement: LiteralString | sql.Composed, arguments: dict[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        async def ask() -> list[tuple[Any, ...]]:
            cursor = await self._connection.execute(statement, arguments)
            return await cursor.fetchall() if cursor.description else []

        if self._connection.closed:
            raise DatabaseUnavailable("Postgres is not available: the session was lost")
        return await wait_for_answer(self._connection, _ANSWER_TIMEOUT, ask())


def _state(partition: int, leader: tuple[Any, ...] | None, pause: str | None) -> str:
    if pause is not None:
        return f"partition {partition} is paused: {pause}"
    if leader is None:
        return f"partition {partition} has no leader (start a worker)"
    client, is_lost, sink_down, source_down = leader
    if is_lost:
        return f"partition {partition}'s leader {client} no longer renews its term"
    if sink_down or source_down:
        what = "sink" if sink_down else "source"
        return f"partition {partition}, led by {client}: the {what} is down: {sink_down or source_down}"
    return f"partition {partition} is led by {client}, which is at work"


def _of_parked(parked: Sequence[tuple[str, int, int, str]]) -> str:
    said = [
        f"{'1000 or more' if count >= _PARKED_MOST else count} in tube {tube!r}, as shard {shard} id {key}"
        for tube, count, shard, key in parked
    ]
    return (
        f"the touches have left the tubes, but keys are parked, so their documents are not at the sink: "
        f"{'; '.join(said)} (`pytube park list` shows why; with --ignore-parked they don't count)"
    )
