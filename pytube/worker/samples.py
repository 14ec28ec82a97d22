"""Compares a sample of each tube's copy with the source now and then, by the rules of `pytube verify`.

Copies have missed changes where a sample differs. The process that delivers the first partition of a tube
does it, so that one does. When the last sample ended stands in the database: a worker that takes over
continues from there, and repeats an interrupted sample.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from pytube.clock import for_people
from pytube.config import Config
from pytube.errors import RECOVERABLE, PytubeError
from pytube.events import CopyDiffers
from pytube.logs import is_news
from pytube.sources import queries
from pytube.verify.report import Report
from pytube.verify.run import Sample, verify
from pytube.worker.database import Database
from pytube.worker.queues import Tube

_LOOK_INTERVAL = 1.0
_PATIENCE = 30.0
"""Seconds to wait for the delivery of keys that seem to differ."""
_BEHIND = 2.0
"""Seconds that a tube may be behind while a sample of it is compared."""
_LONGEST_HOLD = 60.0
"""Seconds after which a sample is given up that waits for its tube to catch up."""
_LONGEST = 1800.0
"""Seconds after which a sample is given up that does not end: some sinks never answer."""
_RETRY = 60.0
"""Seconds at most after which a failed sample is begun again."""
_NAMED = 5
"""Keys of each kind that are named."""


class _GivenUp(Exception):
    """The sample is not finished now: live changes, or another worker, come first."""


class Sampler:
    """Compares samples, one at a time."""

    def __init__(
        self,
        config: Config,
        database: Database,
        tubes: Mapping[str, Tube],
    ) -> None:
        self._config = config
        self._database = database
        self.tubes = {name: tube for name, tube in tubes.items() if config.tube(name).verify is not None}
        """The tubes whose copies are sampled."""
        self._due: dict[str, float] = {}
        """When the next sample of each tube that is led here begins."""
        self._told: dict[object, str] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_INTERVAL)
            try:
                await self._follow_leadership()
            except RECOVERABLE:
                continue  # the renewals report it
            now = time.monotonic()
            for name in [name for name, due in self._due.items() if due <= now]:
                await self._try(name)

    async def _follow_leadership(self) -> None:
        """Know when samples are due of the tubes that are led here, and of no other."""
        led = {name for name in self.tubes if self._database.works_on(name, 0)}
        self._due = {name: due for name, due in self._due.items() if name in led}
        if not (new := led - self._due.keys()):
            return
        ages: dict[str, float] = dict(
            await self._database.pool.rows(queries.SAMPLE_AGES, {"tubes": list(new)})
        )
        now = time.monotonic()
        self._due |= {name: now + max(0.0, self._every(name) - ages.get(name, float("inf"))) for name in new}

    def _every(self, name: str) -> float:
        settings = self._config.tube(name).verify
        assert settings is not None
        return settings.every

    async def _try(self, name: str) -> None:
        """Compare a sample; an error is logged, and the sample begun again later."""
        limit = asyncio.timeout(_LONGEST)
        try:
            async with limit:
                await self._compare(name)
        except _GivenUp:
            pause = _LOOK_INTERVAL
        except Exception as error:  # noqa: BLE001 # sinks and transforms may be anybody's code
            pause = min(self._every(name), _RETRY)
            said = str(error)
            if not isinstance(error, PytubeError):
                said = f"{type(error).__name__}: {said}" if said else type(error).__name__
            if limit.expired():
                said = f"it was not done within {for_people(_LONGEST)}; compare fewer keys: lower `sample`"
            if is_news(self._told, name, said):
                self._database.log.warning("sample_not_compared", tube=name, reason=said)
        else:
            self._told.pop(name, None)
            pause = self._every(name)
        self._due[name] = time.monotonic() + pause

    async def _compare(self, name: str) -> None:
        settings = self._config.tube(name).verify
        assert settings is not None

        async def pace(seconds: float) -> None:
            await self._give_way(name, seconds)

        await pace(0.0)
        report = await verify(
            self._config, name, sample=Sample(keys=settings.sample), patience=_PATIENCE, pace=pace
        )
        differing = report.missing + report.extra + report.different - report.parked
        detail = _detail(report)
        await self._database.pool.execute(
            queries.SAMPLED,
            {
                "tube": name,
                "checked": report.compared,
                "differing": differing,
                "undecided": report.waiting + report.changing + report.unsendable,
                "detail": detail,
            },
        )
        if differing:
            self._database.emit(CopyDiffers(name, report.compared, differing, detail))

    async def _give_way(self, name: str, seconds: float) -> None:
        """Take no more of the time than backfills may of the sends, and none while the tube is behind."""
        share = self._config.tube(name).backfill_share
        await asyncio.sleep(seconds * (1 / share - 1))
        ends_at = time.monotonic() + _LONGEST_HOLD
        while self._database.works_on(name, 0):
            lag = await self._database.pool.value(queries.TUBE_LAG, {"tube": name})
            if (lag or 0.0) < _BEHIND:
                return
            if time.monotonic() >= ends_at:
                break
            await asyncio.sleep(_LOOK_INTERVAL)
        raise _GivenUp


def _detail(report: Report) -> str:
    named = [
        f"{kind} shard {shard} id {str(key)[:50]!r}"
        if isinstance(key, str)
        else f"{kind} shard {shard} id {key}"
        for kind in ("missing", "extra", "different")
        for shard, key in report.examples.get(kind, [])[:_NAMED]
    ]
    return f"{report}: {', '.join(named)}" if named else str(report)
