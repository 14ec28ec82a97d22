"""A simulated sink that needs time for each document, and workers that send to it. No time passes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count

from pytube.pipeline.limits import CongestionControl, Sent, Verdict


@dataclass(slots=True)
class SimulatedWorker:
    """What one worker, with a backlog that never ends, has sent."""

    control: CongestionControl
    sends: int
    """Requests that it would have under way at most, whatever its control says."""
    begins: float = 0.0
    in_flight: int = 0
    answered: list[tuple[float, int]] = field(default_factory=list)
    """When how many documents were answered."""
    timeouts: list[float] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def rate(self, since: float, until: float) -> float:
        """Documents a second that were answered in that time."""
        return sum(each for at, each in self.answered if since <= at < until) / (until - since)


class SimulatedSink:
    """Serves requests in the order of their coming, so many at a time; those given up, too."""

    def __init__(
        self, *, servers: int, per_document: float, per_request: float = 0.0, timeout: float = 10.0
    ) -> None:
        self.per_document = per_document
        self.per_request = per_request
        self._timeout = timeout
        self._free_at = [0.0] * servers
        self._events: list[tuple[float, int, SimulatedWorker, Sent, bool]] = []
        self._order = count()
        self.now = 0.0
        self.refuses = 0
        """Requests under way beyond which others are put off; 0: none is."""
        self.in_flight = 0

    def run(self, until: float, *workers: SimulatedWorker) -> None:
        """Let the workers send until then."""
        starts = sorted({worker.begins for worker in workers if self.now <= worker.begins < until})
        for start in starts or [self.now]:
            self._advance(start, workers)
            self.now = max(self.now, start)
            self._send(workers)
        self._advance(until, workers)
        self.now = until

    def _advance(self, until: float, workers: tuple[SimulatedWorker, ...]) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, worker, sent, is_refused = heapq.heappop(self._events)
            worker.in_flight -= 1
            self.in_flight -= 1
            if is_refused:
                worker.control.push_back(sent, self.now)
            elif self.now - sent.at >= self._timeout:
                worker.timeouts.append(self.now)
                worker.verdicts.append(worker.control.time_out(sent, self.now))
            else:
                worker.answered.append((self.now, sent.documents))
                worker.control.answer(sent, self.now)
            self._send(workers)

    def _send(self, workers: tuple[SimulatedWorker, ...]) -> None:
        for worker in workers:
            while worker.begins <= self.now and worker.in_flight < min(worker.control.requests, worker.sends):
                worker.in_flight += 1
                self.in_flight += 1
                self._serve(worker, worker.control.send(self.now, worker.control.documents, worker.in_flight))

    def _serve(self, worker: SimulatedWorker, sent: Sent) -> None:
        if self.refuses and self.in_flight > self.refuses:
            self._later(self.now + 0.01, worker, sent, is_refused=True)
            return
        begins = max(self.now, heapq.heappop(self._free_at))
        ends = begins + self.per_request + sent.documents * self.per_document
        heapq.heappush(self._free_at, ends)
        self._later(min(ends, self.now + self._timeout), worker, sent)

    def _later(self, at: float, worker: SimulatedWorker, sent: Sent, *, is_refused: bool = False) -> None:
        heapq.heappush(self._events, (at, next(self._order), worker, sent, is_refused))
