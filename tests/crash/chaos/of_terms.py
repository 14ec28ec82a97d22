"""What must hold between what terms did and what the database recorded of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tests.crash.chaos.records import Term, Window

DRIFT = 0.01
"""Seconds that a worker's clock of trust may differ, over one deadline, from the clock of journals.

No more is needed. A worker counts from before it asks, so from before the moment that the database writes
down; and it has its answer before it begins the send.
"""


def unrecorded(window: Window) -> Iterator[str]:
    """Terms that wrote or spoke without a record, or wrote where they had no business."""
    terms = {term.epoch: term for term in window.terms}
    for line in window.lines:
        term = terms.get(line.token.epoch)
        if term is None:
            yield f"epoch {line.token.epoch} wrote key {(line.shard, line.id)}, and has no record"
        elif not term.covers(line.shard):
            yield f"key {(line.shard, line.id)} was written under {term}"
    known = {term.leader_id for term in window.terms}
    for leader_id in sorted(window.told.keys() - known):
        yield f"a worker began the term {leader_id}, which has no record"


def untrusted(window: Window) -> Iterator[str]:
    """Sends that began when the term could not trust itself any more, or did not exist yet."""
    terms = {term.epoch: term for term in window.terms}
    for call in window.calls:
        term = terms.get(call.token.epoch)
        if term is None:
            continue  # told by `unrecorded`, where anything was written
        right = _renewed(term, window, call.began) + window.receive_deadline + DRIFT
        if term.outcome == "released" and term.ended_at is not None:
            right = min(right, term.ended_at)
        if not term.acquired_at <= call.began <= right:
            yield f"a send began at {call.began:.6f}, the right to it was over at {right:.6f}: {term}"


def _renewed(term: Term, window: Window, moment: float) -> float:
    """When a term had been renewed last by then. It begins with a renewal."""
    renewals = window.renewals.get(term.leader_id, ())
    index = bisect_right(renewals, moment)
    return renewals[index - 1] if index else term.acquired_at


def hasty(window: Window) -> Iterator[str]:
    """Terms that sent before each earlier one had released or run out."""
    first: dict[int, float] = {}
    for call in window.calls:
        epoch = call.token.epoch
        first[epoch] = min(call.began, first.get(epoch, call.began))
    for term in window.terms:
        if term.epoch in first:
            for earlier in window.terms:
                if _holds_up(earlier, term, first[term.epoch]):
                    yield f"{term} sent at {first[term.epoch]:.6f}, before {earlier.runs_out:.6f}: {earlier}"


def _holds_up(earlier: Term, later: Term, sent_at: float) -> bool:
    return earlier.epoch < later.epoch and sent_at < earlier.runs_out and earlier.shares_a_shard_with(later)
