"""One attempt to deliver keys, without a worker around it."""

from __future__ import annotations

import asyncio
from typing import Any

from pytube.model import Batch, Pod, PodClass
from pytube.pipeline.inflight import InFlight
from pytube.testing.memory import MemorySink
from pytube.worker.delivery import Outcome
from tests.unit.rig import Rig


class Trip:
    """One attempt to deliver the ids given."""

    def __init__(self, *ids: int, sink: MemorySink | None = None, op: str = "U", **settings: object) -> None:
        self.rig = Rig(sink, None, **settings)
        for key in ids:
            self.rig.enricher.rows[0, key] = b"{}"
        machine = InFlight()
        machine.add([Pod(9, op, 0, ids)])
        flight = machine.take(PodClass.BACKFILL if op == "B" else PodClass.INCREMENTAL, len(ids))
        assert flight is not None
        self.flight = flight

    def start(self) -> asyncio.Task[Outcome]:
        return asyncio.create_task(self._run())

    async def run(self) -> Outcome:
        return await asyncio.wait_for(self._run(), 5)

    async def _run(self) -> Outcome:
        await self.rig.sink.open()
        return await self.rig.deliverer.deliver(self.flight, self.flight.by_shard())

    @property
    def held(self) -> list[Any]:
        return sorted(key for _, key in self.rig.sink.store.values())


def done(outcome: Outcome) -> list[Any]:
    """The ids that the sink has."""
    return sorted(key for groups in outcome.done for ids in groups.values() for key in ids)


class AbandoningSink(MemorySink):
    """Notes what is abandoned, which returns only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.abandoned: list[Batch] = []
        self.may_return = asyncio.Event()
        self.may_return.set()

    async def abandon(self, batch: Batch) -> None:
        self.abandoned.append(batch)
        await self.may_return.wait()
