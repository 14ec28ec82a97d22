"""`/healthz`, `/readyz` and `/metrics` of a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from pytube.errors import ConfigError, how_to_install
from pytube.logs import Logger
from pytube.worker.exporter import View, WorkerCollector
from pytube.worker.http import Answer, HttpResponder, Maker

if TYPE_CHECKING:  # from the extra `metrics`
    from prometheus_client import Metric

_MOST_TIME = 0.01
"""The part of the event loop's time that scrapes may take; answers are repeated to keep to it."""
_OLDEST = 10.0
"""Seconds after which an answer is made again, whatever it costs."""


def build_listener(
    address: str,
    view: View,
    *,
    why_broken: Callable[[], str | None],
    why_unready: Callable[[], str | None],
    remarks: Callable[[], Sequence[str]],
    log: Logger,
) -> HttpResponder:
    """A listener that is not open yet.

    Args:
        address: as in the configuration.
        view: what the metrics are made of.
        why_broken: why `/healthz` fails; None while the worker is well.
        why_unready: why `/readyz` fails; None while the worker serves or stands by.
        remarks: what `/readyz` says of parts that can't be served while others are.
        log: receives faults.

    Raises:
        ConfigError: the package that writes metrics is not installed.
    """
    try:
        import prometheus_client  # noqa: F401 # its parts are imported where they are used
    except ImportError as error:
        raise ConfigError(
            f"key worker.listen needs the package prometheus_client: {how_to_install('metrics')}"
        ) from error

    async def health() -> Answer:
        return _state(why_broken(), "ok")

    async def readiness() -> Answer:
        return _state(why_unready(), "\n".join(["ok", *remarks()]))

    paths: dict[str, Maker] = {
        "/healthz": health,
        "/readyz": readiness,
        "/metrics": _Scrapes(WorkerCollector(view)).answer,
    }
    return HttpResponder(address, paths, log)


def _state(reason: str | None, well: str) -> Answer:
    if reason is not None:
        return Answer.text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
    return Answer.text(HTTPStatus.OK, well)


class _Scrapes:
    """Answers scrapes at a bounded cost, however many tubes there are and however often somebody asks."""

    def __init__(self, collector: WorkerCollector) -> None:
        self._collector = collector
        self._turn = asyncio.Lock()
        self._body = b""
        self._fresh_until = float("-inf")

    async def answer(self) -> Answer:
        """The metrics, no older than `_OLDEST`."""
        from prometheus_client import CONTENT_TYPE_LATEST

        async with self._turn:
            if time.monotonic() >= self._fresh_until:
                await self._renew()
            return Answer(HTTPStatus.OK, self._body, CONTENT_TYPE_LATEST)

    async def _renew(self) -> None:
        # Not over the global registry, which belongs to the program that embeds the worker.
        from prometheus_client import generate_latest

        parts: list[bytes] = []
        spent, begun = 0.0, time.monotonic()
        for family in self._collector.collect():
            parts.append(generate_latest(_One(family)))
            spent += time.monotonic() - begun
            await asyncio.sleep(0)  # with hundreds of tubes, all at once would keep deliveries waiting
            begun = time.monotonic()
        self._body = b"".join(parts)
        self._fresh_until = time.monotonic() + min(_OLDEST, spent / _MOST_TIME)


@dataclass(frozen=True, slots=True)
class _One:
    """A collector of one metric."""

    family: Metric

    def collect(self) -> list[Metric]:
        return [self.family]
