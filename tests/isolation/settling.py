"""The settled seq and the floors, as a worker drives them: a small reference that tests can step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from pytube.sources.settled import Settled
from tests.helpers.terms import Conn, Marked, Term, mark, purge, reset, scalar
from tests.helpers.waiting import wait_until_async


@dataclass
class Settling:
    """S and X of one attempt."""

    seq: int
    xid: str

    @classmethod
    def begin(cls, conn: Conn) -> Settling:
        """Steps 1 and 2, each a transaction of its own."""
        seq = scalar(conn, "SELECT tube_settle_seq()")
        return cls(seq, scalar(conn, "SELECT pg_current_xact_id()::text"))

    def done(self, conn: Conn) -> bool:
        """Step 3."""
        return bool(scalar(conn, "SELECT tube_settle_done(%s::xid8)", (self.xid,)))


@dataclass
class Driver:
    """A leader that marks beyond its floors and purges what it is told to."""

    conn: Conn
    term: Term
    limit: int
    floors: list[int] = field(default_factory=lambda: [0, 0])
    in_flight: dict[int, Marked] = field(default_factory=dict)
    settled: int = 0
    settling: Settling | None = None

    def settle(self) -> None:
        """One step towards the next settled seq."""
        self.settling = self.settling or Settling.begin(self.conn)
        if self.settling.done(self.conn):
            self.settled = self.settling.seq
            self.settling = None

    def mark(self) -> list[Marked]:
        """Mark beyond the floors, and raise them."""
        pods = mark(self.conn, self.term, self.limit, self.floors)
        backfill = [pod.seq for pod in pods if pod.op == "B"]
        incremental = [pod.seq for pod in pods if pod.op != "B"]
        self._raise(0, incremental, self.limit)
        self._raise(1, backfill, self.limit - len(incremental))
        self.in_flight |= {pod.seq: pod for pod in pods}
        return pods

    def purge(self, seqs: list[int]) -> None:
        assert purge(self.conn, self.term, seqs) == len(seqs)
        for seq in seqs:
            del self.in_flight[seq]

    def reset(self, seqs: list[int]) -> None:
        """Give pods back, and lower the floors."""
        assert reset(self.conn, self.term, seqs) == len(seqs)
        for seq in seqs:
            pod = self.in_flight.pop(seq)
            kind = 1 if pod.op == "B" else 0
            self.floors[kind] = min(self.floors[kind], seq - 1)

    def _raise(self, kind: int, seqs: list[int], limit: int) -> None:
        if limit == 0:
            return  # the class was not looked at
        reached = self.settled if len(seqs) < limit else min(self.settled, seqs[-1])
        self.floors[kind] = max(self.floors[kind], reached)


def database(conn: Conn, name: str) -> str:
    """Make a database beside that of `conn`; its DSN."""
    conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    return psycopg.conninfo.make_conninfo(conn.info.dsn, dbname=name)


async def until_provisional(settled: Settled, seq: int) -> None:
    """Advance until `seq` can be passed."""

    async def advance() -> None:
        while settled.provisional < seq:
            await settled.advance()

    task = asyncio.create_task(advance())
    try:
        await wait_until_async(task.done, what=f"{seq} can be passed")
    finally:
        task.cancel()
