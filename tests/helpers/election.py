"""What the tests of elections share: a worker that does nothing but hold claims."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pytube.config.names import leader_name
from pytube.election import Claim, Election
from pytube.election.base import Ended
from pytube.election.member import NeliSettings
from pytube.election.neli import NeliElection
from pytube.errors import BrokerUnavailable, NotLeader
from tests.helpers.waiting import wait_until_async

ROOT = Path(__file__).resolve().parents[2]
_numbers = itertools.count(1)


def fresh_tube() -> str:
    """A tube's name that no other test has."""
    return f"tube-{uuid.uuid4().hex[:8]}"


def neli(
    bootstrap: str, tube: str, *, partitions: int | Callable[[], int] = 4, **settings: Any
) -> NeliElection:
    """An election with times that suit tests."""

    def count() -> dict[str, int]:
        return {tube: partitions() if callable(partitions) else partitions}

    others = {
        name: settings.pop(name) for name in ("slots", "able", "away", "start_timeout") & settings.keys()
    }
    defaults: dict[str, Any] = {
        "topic": leader_name("test", tube),
        "group": leader_name("test", tube),
        "client_id": f"worker-{next(_numbers)}",
        "receive_deadline": 1.0,
        "session_timeout": 3.0,
    }
    return NeliElection(
        tube, count, NeliSettings(bootstrap_servers=bootstrap, **{**defaults, **settings}), **others
    )


class Holder:
    """Proves each claim, and hands it over when it is revoked."""

    def __init__(self, election: Election) -> None:
        self.election = election
        self.holds: dict[int, Claim] = {}
        self.lost: list[int] = []
        self.refused: list[int] = []
        self.unanswered = 0
        self.keep = asyncio.Event()
        """Cleared: revoked claims are not handed over until it is set."""
        self.keep.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None

    @property
    def partitions(self) -> set[int]:
        """Those held now."""
        return set(self.holds)

    async def start(self) -> None:
        await self.election.start()
        self._reader = asyncio.create_task(self._read())

    async def stop(self) -> None:
        await self.election.stop()
        if self._reader is not None:
            self._reader.cancel()
        await asyncio.gather(*self._tasks)

    async def _read(self) -> None:
        while True:
            claim = await self.election.claims.get()
            if claim.withdrawn is not None:
                claim.handed_over()
                continue
            task = asyncio.create_task(self._hold(claim))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _prove(self, claim: Claim) -> None:
        while True:
            try:
                return await claim.prove()
            except BrokerUnavailable:
                self.unanswered += 1

    async def ended(self, claim: Claim) -> None:
        """Called before a claim is handed over."""

    async def _hold(self, claim: Claim) -> None:
        try:
            await self._prove(claim)
        except NotLeader:
            self.refused.append(claim.partition)
            return
        self.holds[claim.partition] = claim
        await claim.wait_until_withdrawn()
        if not isinstance(claim.withdrawn, Ended):
            await self.keep.wait()
        await self.ended(claim)
        if self.holds.get(claim.partition) is claim:
            del self.holds[claim.partition]
        if isinstance(claim.withdrawn, Ended):
            self.lost.append(claim.partition)
        claim.handed_over()


@asynccontextmanager
async def holding(*elections: Election) -> AsyncIterator[list[Holder]]:
    """Holders of these elections, started; stopped at the end."""
    holders = [Holder(election) for election in elections]
    try:
        for holder in holders:
            await holder.start()
        yield holders
    finally:
        for holder in holders:
            holder.keep.set()
            await holder.stop()


def shared_by(holders: list[Holder], partitions: int, each: int = 1) -> Callable[[], bool]:
    """Whether every partition is held exactly once, and each holder has at least `each`."""

    def check() -> bool:
        held = sorted(number for holder in holders for number in holder.partitions)
        return held == list(range(partitions)) and all(len(holder.holds) >= each for holder in holders)

    return check


async def until_shared(holders: list[Holder], partitions: int, each: int = 1) -> None:
    """Wait for `shared_by`."""
    await wait_until_async(
        shared_by(holders, partitions, each), what=f"{partitions} partitions shared by {len(holders)}"
    )


class HolderProcess:
    """`tests/helpers/election_process.py` in a process of its own, and what it says."""

    def __init__(self, bootstrap: str, tube: str, **settings: Any) -> None:
        arguments = json.dumps({"bootstrap": bootstrap, "tube": tube, "settings": settings})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.election_process", arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def partitions(self) -> set[int]:
        """Those that it holds, as far as it said."""
        last = [line for line in self.said if line["event"] == "holds"]
        return set(last[-1]["partitions"]) if last else set()

    def count(self, event: str) -> int:
        """How often it said so."""
        return sum(line["event"] == event for line in self.said)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def _read(self) -> None:
        for line in self.process.stdout or []:
            if line.startswith("{"):
                self.said.append(json.loads(line))
