"""What streams of tubes and outboxes share: offsets are settled seqs, so no late commit is missed."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass

import psycopg
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pytube.errors import DatabaseUnavailable
from pytube.spark import queries
from pytube.spark.hosts import Host
from pytube.spark.queries import value

_TIMEOUT = 60.0
_POLL = 0.02
_ASK_HOLDERS_AFTER = 0.5


class SettledStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream whose offset is a settled seq. Subclasses read what is between two of them."""

    def __init__(self, host: Host, name: str, most: int | None) -> None:
        """Args:
        host: the database.
        name: of the tube or outbox.
        most: how many rows a batch may have; None: any number.
        """
        self._host = host
        self._most = most
        self._settled = SettledSeq(name)
        self._last: int | None = None
        """The end of a stream that reads only what is there when it starts."""
        self._connection: psycopg.Connection | None = None

    @abstractmethod
    def check(self, connection: psycopg.Connection) -> None:
        """Raise if there is nothing of that name."""

    @abstractmethod
    def nth(self, connection: psycopg.Connection, after: int, upto: int, limit: int) -> int:
        """The seq of the `limit`th row beyond `after`; `upto` if there are fewer."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 # Spark's name
        """The offset before all. Fails here, not at the first row, if it can't be read."""
        self.check(self.session())
        return {"seq": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to the seq that is drawn now, and then end."""
        self._last = self._settled.reach(self.session())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What bounds a batch."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The settled seq, or a lower seq if there is a limit."""
        after = int(start["seq"])
        upto = self._settled.advance(self.session()) if self._last is None else self._last
        upto = max(after, upto)
        if isinstance(limit, ReadMaxRows) and upto > after:
            upto = self.nth(self.session(), after, upto, limit.max_rows)
        return {"seq": upto}

    def stop(self) -> None:
        """End the session."""
        if self._connection is not None:
            self._connection.close()

    def session(self) -> psycopg.Connection:
        """The session; opened when first needed, because the reader is pickled, and again after a loss."""
        try:
            if self._connection is not None and not self._connection.closed:
                self._connection.execute("SELECT 1")
                return self._connection
        except psycopg.Error:
            self._connection = None
        self._connection = self._host.connect()
        return self._connection


@dataclass(slots=True)
class _Probe:
    seq: int
    xid: str
    begun_at: float
    holders: list[str] | None = None


class SettledSeq:
    """Finds the settled seq of a tube or outbox: all at or below it that will ever exist is visible.

    The steps are those that `tube_settle_seq` describes. A lost session may be replaced at any time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._probe: _Probe | None = None
        self.seq = 0

    def advance(self, connection: psycopg.Connection) -> int:
        """Settle what can be settled now. Returns the newest seq that is known to be settled."""
        if self._probe is None:
            drawn = int(value(connection, queries.SETTLE_SEQ))
            if drawn > self.seq:
                # Read before: a session that drew a seq up to `drawn` has an older transaction id.
                xid = str(value(connection, queries.SETTLE_XID))
                self._probe = _Probe(drawn, xid, time.monotonic())
        if self._probe is not None and self._is_over(connection, self._probe):
            self.seq = max(self.seq, self._probe.seq)
            self._probe = None
        return self.seq

    def reach(self, connection: psycopg.Connection) -> int:
        """Wait until every seq that is drawn by now is settled.

        Raises:
            DatabaseUnavailable: transactions of writers stay open for longer than a minute.
        """
        drawn = int(value(connection, queries.SETTLE_SEQ))
        deadline = time.monotonic() + _TIMEOUT
        while self.advance(connection) < drawn:
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"transactions that may write to {self._name!r} are open for {_TIMEOUT:g} s"
                )
            time.sleep(_POLL)
        return self.seq

    def _is_over(self, connection: psycopg.Connection, probe: _Probe) -> bool:
        """Whether every transaction has ended that may have drawn a seq up to the probe's."""
        if value(connection, queries.SETTLE_DONE, xid=probe.xid):
            return True
        if time.monotonic() - probe.begun_at < _ASK_HOLDERS_AFTER:
            return False
        # The open transaction may belong to another database. Ask for those that have the table open.
        if probe.holders is None:
            probe.holders = list(value(connection, queries.SETTLE_HOLDERS, tube=self._name))
        return bool(value(connection, queries.SETTLE_LEFT, tube=self._name, holders=probe.holders))
