"""Steps of a paused partition: one document, delivered because an operator asks for it.

The leader does it, under its own term and with its own tokens, so that nobody else writes to the sink.
"""

from __future__ import annotations

import asyncio

from pytube.model import PodClass
from pytube.pipeline.inflight import Flight
from pytube.sources.pods import TubeSource
from pytube.worker.active_term import ActiveTerm
from pytube.worker.database import Database
from pytube.worker.delivery import Deliverer, Outcome
from pytube.worker.partition_worker import Means


class Stepper:
    """Does the steps of one partition during one pause."""

    def __init__(self, active_term: ActiveTerm, tube: Means, database: Database) -> None:
        """Starts nothing."""
        self._active_term = active_term
        self._tube = tube
        self._source = TubeSource(database.pool, active_term.term)

    async def take(self, number: int) -> None:
        """Do the step of this number, unless nobody wants it any more.

        Raises:
            NotLeader: the term is over.
            DatabaseUnavailable: a session was lost.
        """
        step = await self._source.take_step(number)
        if step is None:
            return
        if (reason := self._tube.why_closed) is not None:
            await self._source.end_step(step, "unsent", f"the sink is not open: {reason}")
            return
        # A deliverer of its own: a sink that was down a moment ago is asked at once, not after a back-off.
        deliverer = Deliverer(
            self._active_term,
            self._tube.enricher,
            self._tube.transforms,
            self._tube.sink,
            self._tube.gate,
            self._tube.limits,
            self._tube.faults,
            self._tube.metrics,
            self._tube.tracing.partition(self._active_term.term),
        )
        flight = Flight(PodClass.INCREMENTAL)
        flight.stamp, flight.ts = step.seq, step.ts
        delivery = asyncio.create_task(deliverer.deliver(flight, {step.shard: [step.id]}))
        delivery.add_done_callback(lambda _: self._active_term.attention.set())
        try:
            outcome = await self._wait_for(delivery)
            await self._source.end_step(step, *self._judge(outcome))
        finally:
            await _cancel(delivery)
            await deliverer.wait_for_unanswered()
            self._active_term.troubles.end("sink")
            self._active_term.troubles.end("source")

    async def _wait_for(self, delivery: asyncio.Task[Outcome]) -> Outcome | None:
        """What came of it; None when the claim was revoked, and it did not end in time."""
        term = self._active_term
        while not (delivery.done() or term.is_revoked):
            if term.ended is not None:
                raise term.ended
            term.attention.clear()
            await term.attention.wait()
        if not delivery.done():
            await asyncio.wait([delivery], timeout=self._tube.limits.request_timeout)
        if not delivery.done():
            await _cancel(delivery)
            return None
        return delivery.result()

    def _judge(self, outcome: Outcome | None) -> tuple[str, str | None]:
        """The outcome of a step in the words of `tube_step_end`, and the reason."""
        if outcome is None:
            return "unsent", "the worker ends; whether the sink has the document is unknown"
        troubles = self._active_term.troubles
        down = troubles.reason("sink") or troubles.reason("source") or "the right to send has lapsed"
        judgements = (
            (outcome.done, ("delivered", None)),
            (outcome.skipped, ("skipped", None)),
            (
                outcome.orphans,
                ("failed", f"no table attached to tube {self._active_term.term.tube!r} has the shard"),
            ),
            (outcome.rejected, ("failed", "".join(outcome.rejected.values()))),
            (outcome.failed, ("failed", "".join(reason for _, reason in outcome.failed))),
            (outcome.delayed, ("unsent", "the sink puts the document off")),
            (outcome.unsure, ("unsent", f"whether the sink has the document is unknown: {down}")),
        )
        # A single key is in one of these places.
        return next((judgement for found, judgement in judgements if found), ("unsent", down))


async def _cancel(delivery: asyncio.Task[Outcome]) -> None:
    delivery.cancel()
    await asyncio.gather(delivery, return_exceptions=True)
