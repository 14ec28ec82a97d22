"""One delivery on its way, without a worker around it."""

from __future__ import annotations

import asyncio
from typing import Any

from pytube.model import Batch, Pod, PodClass
from pytube.pipeline.inflight import InFlight
from pytube.testing.memory import MemorySink
from pytube.worker.delivery import Delivery
from tests.unit.rig import Rig


class Trip:
    """One delivery of the ids given, without a worker around it."""

    def __init__(self, *ids: int, sink: MemorySink | None = None, **limits: float) -> None:
        self.rig = Rig(sink, **limits)
        self.ids = ids
        for key in ids:
            self.rig.enricher.rows[0, key] = b"{}"
        self.machine = InFlight()
        self.machine.add([Pod(9, "U", 0, ids)])
        flight = self.machine.take(PodClass.INCREMENTAL, len(ids))
        assert flight is not None
        self.delivery = Delivery(self.rig.carrier, flight)

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._run())

    async def run(self) -> None:
        await asyncio.wait_for(self._run(), 5)

    async def _run(self) -> None:
        await self.rig.sink.open()
        await self.delivery.run()

    @property
    def done(self) -> list[Any]:
        outcomes = [outcome for _, outcome in self.rig.carrier.outcomes]
        return sorted(key for outcome in outcomes for ids in outcome.keys.values() for key in ids)

    @property
    def parked(self) -> dict[Any, str]:
        outcomes = [outcome for _, outcome in self.rig.carrier.outcomes]
        return {dead.key[1]: dead.reason for outcome in outcomes for dead in outcome.dead_letters}

    @property
    def held(self) -> list[Any]:
        return sorted(key for _, key in self.rig.sink.store.values())


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
