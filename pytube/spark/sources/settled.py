"""The settled seq of a tube, over one session: all pods at or below it that will ever exist are visible.

The steps are those of `tube_settle_seq`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psycopg

from pytube.db.errors import translated
from pytube.errors import DatabaseUnavailable
from pytube.spark import queries

_ASK_HOLDERS_AFTER = 0.5
_POLL = 0.02


@dataclass(slots=True)
class _Probe:
    seq: int
    xid: str
    begun_at: float
    holders: list[str] | None = None


class SettledSeq:
    """Finds it bit by bit; a lost session may be replaced by another at any time."""

    def __init__(self, tube: str) -> None:
        self._tube = tube
        self._probe: _Probe | None = None
        self.seq = 0

    def advance(self, connection: psycopg.Connection) -> int:
        """Settle what can be now; the newest seq that is known to be settled."""
        if self._probe is None:
            drawn = int(_value(connection, queries.SETTLE_SEQ, {}))
            if drawn > self.seq:
                # Drawn first: whoever drew up to it had an older transaction id.
                xid = str(_value(connection, queries.SETTLE_XID, {}))
                self._probe = _Probe(drawn, xid, time.monotonic())
        if self._probe is not None and self._is_over(connection, self._probe):
            self.seq = max(self.seq, self._probe.seq)
            self._probe = None
        return self.seq

    def reach(self, connection: psycopg.Connection, timeout: float) -> int:
        """Wait until all is settled that is drawn by now.

        Raises:
            DatabaseUnavailable: writers were open for longer than `timeout` seconds.
        """
        drawn = int(_value(connection, queries.SETTLE_SEQ, {}))
        deadline = time.monotonic() + timeout
        while self.advance(connection) < drawn:
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"transactions that may write to tube {self._tube!r} are open for {timeout:g} s"
                )
            time.sleep(_POLL)
        return self.seq

    def _is_over(self, connection: psycopg.Connection, probe: _Probe) -> bool:
        if _value(connection, queries.SETTLE_DONE, {"xid": probe.xid}):
            return True
        if time.monotonic() - probe.begun_at < _ASK_HOLDERS_AFTER:
            return False
        # Perhaps somebody of another database: those who had the tube open decide.
        if probe.holders is None:
            probe.holders = list(_value(connection, queries.SETTLE_HOLDERS, {"tube": self._tube}))
        arguments = {"tube": self._tube, "holders": probe.holders}
        return bool(_value(connection, queries.SETTLE_LEFT, arguments))


def _value(connection: psycopg.Connection, query: str, arguments: dict[str, Any]) -> Any:
    with translated():
        row = connection.execute(query.encode(), arguments).fetchone()
    assert row is not None
    return row[0]
