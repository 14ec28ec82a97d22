"""How much a sink is given, and when: a rate, and limits that adapt to its answers. Pure; times are given.

All moments are of any one monotonic clock, in seconds.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Literal


class TokenBucket:
    """A rate that a second's worth of work may run ahead of.

    In any span of `t` seconds at most `rate * (t + 1)` units pass. A request that is larger than a second's
    worth goes when a second's worth is there, and those behind it wait the longer.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._level = self._most
        self._at = -math.inf

    def wait(self, units: int, now: float) -> float:
        """Seconds until so many units may pass; 0 when they may now."""
        missing = min(units, self._most) - self._level_at(now)
        return max(0.0, missing / self._rate)

    def take(self, units: int, now: float) -> None:
        self._level = self._level_at(now) - units
        self._at = now

    def give_back(self, units: int) -> None:
        """Units that were taken did not pass."""
        self._level = min(self._most, self._level + units)

    def _level_at(self, now: float) -> float:
        gained = 0.0 if now <= self._at else (now - self._at) * self._rate
        return min(self._most, self._level + gained)


_FIRST_DOCUMENTS = 10
"""Documents of a batch at a slow start."""
_SLOW = 1 / 2
"""Of the time-out: an answer that takes longer is a sign of congestion, long before anything times out."""
_CEILING = 3 / 4
"""Of the time-out: the limits grow no further than to where answers are expected to take so long."""
_LESS = 0.7
"""A multiplicative decrease; after a time-out it is a half."""
_STEPS = 16
"""Additive increases of a batch from nothing to the whole."""
_PLENTY = 16
"""Times as much as is sent now: a sink that bears this is given more without looking twice."""
_CALM = 60.0
"""Seconds at full limits after which the sink is no longer slow."""

Sign = Literal["timeout", "latency", "pushback"]
Verdict = Literal["slow", "silent", "document", "late"]


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was sent."""

    at: float
    documents: int
    abreast: int
    """Requests that were under way then, this one included."""
    late: float = 0.0
    """Seconds by which this process had been late until then."""


class CongestionControl:
    """How many documents a batch may have, and how many requests may be under way, at one sink.

    The algorithm is TCP's. Limits grow by steps and shrink by factors: additive increase, multiplicative
    decrease, which gives senders that do not know of each other fair shares (Chiu and Jain 1989). Slow start
    doubles the limits at first, and after an outage; after a time-out while nothing was answered, batches
    begin again with one document (Jacobson 1988). As in delay-based variants, an answer that takes long is a
    sign of congestion, too: documents that time out may be sent twice, so this one does not wait for it.

    Limits change at most once a round trip: only a request that began under the present ones changes them. A
    sink that answers full batches within an eighth of the time-out is given all that the settings allow.
    """

    def __init__(self, *, documents: int, requests: int | None, first: int, timeout: float) -> None:
        """`documents`: of one batch at most; `requests`: under way at most; None: no limit, so that only
        requests that wait make the limit grow; `first`: requests at a slow start; `timeout`: seconds of a
        request.
        """
        self._most_documents = documents
        self._most_requests = sys.maxsize if requests is None else requests
        self._first = first
        self._timeout = timeout
        self.documents = documents
        """Of one batch."""
        self.requests = min(first, self._most_requests)
        """At a time."""
        self.answered_at = -math.inf
        """When the sink gave its last answer."""
        self.slow_at = -math.inf
        """When the sink was last seen to be slow."""
        self.slow: Sign | None = None
        """Why the limits were lowered; None while they are as the settings have them, or begin slowly."""
        self.restart(-math.inf)

    @property
    def why_slow(self) -> str | None:
        """Why the limits were lowered, for people."""
        if self.slow is None:
            return None
        return {
            "timeout": f"it does not answer within {self._timeout:g} s",
            "latency": f"its answers take more than half of {self._timeout:g} s",
            "pushback": "it defers documents",
        }[self.slow]

    @property
    def setting(self) -> str:
        """The setting of the sink that would have lowered them, too."""
        return "requests" if self.slow == "pushback" or self._most_documents == 1 else "batch_documents"

    def restart(self, now: float) -> None:
        """Nothing is known of what the sink bears: begin with a slow start."""
        self.documents = min(self.documents, _FIRST_DOCUMENTS)
        self.requests = min(self.requests, self._first)
        self._patience = self._timeout
        """Seconds after which requests time out: less than the time-out where something between gives up."""
        self._slow_start = True
        self._changed_at = now
        """When a limit was changed last."""
        self._settled_at = math.inf
        """When the first request was answered that had been sent since."""
        self._widest = 1
        """The most requests that were under way at a time."""
        self._pace = math.inf
        """Seconds for each document, in the answer that had the fewest: with no other request to wait for."""
        self._quick: Sent | None = None
        """The request sent last, of the quickly answered ones."""
        self._run: tuple[int, int, float] | None = None
        """The limits and the latency before the first of several decreases in a row."""
        self._is_used_to = False
        """Whether smaller limits have not made answers faster, so that latency counts no more."""
        self._requests_turn = False
        """Whether the limit of requests is the next to grow."""
        self._requests_before = self.requests
        self._full_since: float | None = None

    def send(self, now: float, documents: int, abreast: int, late: float = 0.0) -> Sent:
        self._widest = max(self._widest, abreast)
        return Sent(now, documents, abreast, late)

    # --- signs ----------------------------------------------------------------------------

    def answer(self, sent: Sent, now: float, late: float = 0.0) -> None:
        """The sink has answered. `late`: as of `Sent`, until now: that time is not its fault."""
        self.answered_at = now
        latency = max(0.0, now - sent.at - (late - sent.late))
        self._pace = min(self._pace, latency / sent.documents)
        is_quick = latency <= _SLOW * self._patience
        if is_quick:
            self._run, self._is_used_to = None, False
            if self._quick is None or sent.at >= self._quick.at:
                self._quick = sent
            self._note_calm(sent, now)
        else:
            self.slow_at = now
        if sent.at < self._changed_at:
            return
        # Before, the queue at the sink was still that of other limits.
        is_settled = sent.at >= self._settled_at
        self._settled_at = min(self._settled_at, now)
        if is_quick or self._is_used_to:
            self._grow(sent, latency, is_settled=is_settled, now=now)
        elif is_settled or self._run is None:
            self._slow_down(sent, latency, now)

    def push_back(self, sent: Sent, now: float) -> None:
        """The sink was there, and put documents off. It may count requests, so they don't become smaller."""
        self.answered_at = self.slow_at = now
        if sent.at >= self._changed_at and self.requests > 1:
            self._lower("pushback", now)
            self.requests = self._fewer_requests(sent, _LESS)

    def time_out(self, sent: Sent, now: float, late: float = 0.0) -> Verdict:
        """The outcome of the request is unknown. `late`: as of `Sent`, until now.

        Returns:
            `late`: nothing is known, as the process itself was late for most of the time; `silent`: the sink
            answers nothing, not even a single document; `document`: others that were sent later were answered
            quickly, so it is because of a document; `slow`: neither is certain.
        """
        elapsed, is_silent = now - sent.at, self.answered_at <= sent.at
        if late - sent.late > elapsed / 2:
            return "late"
        if elapsed <= _SLOW * self._patience:  # an error, not a matter of time
            return "silent" if is_silent else "document"
        self.slow_at = now
        later = self._quick
        if later is not None and later.at > sent.at and later.documents >= sent.documents:
            return "document"
        is_down = is_silent and sent.documents == 1
        if sent.at >= self._changed_at:
            self._lower(None if is_down else "timeout", now)
            self._patience = min(self._patience, elapsed)
            self._slow_start, self._run, self._is_used_to = is_silent, None, False
            self.documents = 1 if is_silent else max(1, self.documents // 2)
            self.requests = self._fewer_requests(sent, 1 / 2)
        return "silent" if is_down else "slow"

    # --- changes --------------------------------------------------------------------------

    def _grow(self, sent: Sent, latency: float, *, is_settled: bool, now: float) -> None:
        """Raise a limit, if the sink bears it by what this answer lets expect."""
        wants_documents = self.documents < self._most_documents
        wants_requests = sent.abreast >= self.requests and self.requests < self._most_requests
        # As if the service time were in proportion to the request: then it is safe in all other cases.
        abreast = min(self.requests, self._widest)
        share = max(1.0, self.documents / sent.documents) * max(1.0, abreast / sent.abreast)
        room = _CEILING * self._patience / max(latency * share, 1e-9)
        if not (is_settled or room >= _PLENTY):
            return
        documents, requests = self.documents, self.requests
        if self._slow_start and room >= 4 * _CEILING / _SLOW:
            documents *= 2
            if requests < self._first or not wants_documents:
                requests *= 2
        else:
            # Twice, because one request more than are served at a time may wait for a whole turn. Both limits
            # grow by turns, or together where there is room.
            if wants_requests and room >= 2 and (self._requests_turn or not wants_documents or room >= 2.5):
                requests += max(1, requests // 4)
                room /= 2
            step = max(1, min(self._most_documents // _STEPS, documents // 4))
            documents += max(0, min(step, int(documents * (room - 1))))
            self._requests_turn = requests == self.requests
        self._slow_start = self._slow_start and latency <= self._patience / 8
        if wants_documents and documents > self.documents:
            self.documents = min(documents, self._most_documents)
            self._note_change(now)
        if wants_requests and requests > self.requests:
            self.requests = min(requests, self._most_requests)
            self._note_change(now)

    def _slow_down(self, sent: Sent, latency: float, now: float) -> None:
        """Lower a limit; or raise all to their earlier values, if answers take as long at a lower limit.

        Some sinks take long whatever they get, such as an index that is refreshed now and then.
        """
        self._run = self._run or (self.documents, self.requests, latency)
        documents, requests, before = self._run
        if 2 * self.documents * self.requests <= documents * requests and latency > 3 / 4 * before:
            self.documents, self.requests = documents, requests
            self._run, self._is_used_to = None, True
            self._note_change(now)
            return
        if self.documents == self.requests == 1:
            return
        self._lower("latency", now)
        is_queued = self.requests > 1 and latency / sent.documents >= 2 * self._pace
        if is_queued or self.documents == 1:
            self.requests = self._fewer_requests(sent, _LESS)
            self._pace *= 2  # it may have been measured when the sink was faster
        else:
            self.documents = max(1, int(self.documents * _LESS))

    def _fewer_requests(self, sent: Sent, factor: float) -> int:
        return max(1, int(min(self.requests, sent.abreast) * factor))

    def _lower(self, sign: Sign | None, now: float) -> None:
        if self.slow is None:  # a sink that is down is reported as down
            self.slow, self._requests_before = sign, self.requests
        self._full_since = None
        self._slow_start = False
        self._note_change(now)

    def _note_change(self, now: float) -> None:
        self._changed_at, self._settled_at = now, math.inf

    def _note_calm(self, sent: Sent, now: float) -> None:
        """The sink is not slow any more once the limits have been as before for a while."""
        if self.slow is None:
            return
        has_all = self.requests >= self._requests_before or sent.abreast < self.requests
        if self.documents < self._most_documents or not has_all:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        elif now - self._full_since >= _CALM:
            self.slow = self._full_since = None
            self._patience = self._timeout
