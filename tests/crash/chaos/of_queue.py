"""What must hold between the source's changes, the touches they made, and the purges of these."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.crash.chaos.records import Change, Key, Pod, Window


@dataclass(frozen=True, slots=True)
class Since:
    """The states of a row that who reads it after a transaction may find: what that left, and all later."""

    least: int | None
    """The least `n`; None when it was gone, and did not come back."""
    is_gone: bool
    """Whether it was gone at some time."""

    def before(self, n: int | None) -> Since:
        """The same from an earlier state on."""
        return Since(self.least, is_gone=True) if n is None else Since(n, self.is_gone)

    def misses(self, held: int | None) -> str:
        """Why what was sent is none of these states; nothing when it is."""
        if held is None:
            return "" if self.is_gone else "held a delete, and the row was there all the time"
        if self.least is None:
            return f"held n = {held}, and the row was gone"
        return "" if held >= self.least else f"held n = {held}, less than {self.least}"


Known = dict[tuple[int, Key], Since]
"""By transaction and key."""

_Answer = tuple[float, float, int | None]
"""When it was answered, when the send began, and what it held."""


def uncaptured(window: Window) -> Iterator[str]:
    """Changes without a touch of their transaction."""
    if not window.follows_all:
        return
    touched = {(pod.xid, pod.shard, key) for pod in window.pods for key in pod.ids}
    for change in window.changes:
        if (change.xid, *change.key) not in touched:
            yield f"{change} made no touch"


def left(window: Window) -> Iterator[str]:
    """Touches that are not purged."""
    if window.left:
        yield f"{window.left} pods are left"
    purged = {purge.seq for purge in window.purges}
    for pod in window.pods:
        if pod.seq not in purged:
            yield f"{pod} was not purged"


def unacknowledged(window: Window) -> Iterator[str]:
    """Touches that were purged before the sink had answered for what they stand for."""
    pods = {pod.seq: pod for pod in window.pods}
    known = _known(window.changes)
    answers = _answers(window)
    for purge in window.purges:
        pod = pods.get(purge.seq)
        if pod is None:
            yield f"{purge} is of a pod that nobody has seen"
            continue
        for number in pod.ids:
            key = (pod.shard, number)
            reason = _missing(answers.get(key, []), pod, known.get((pod.xid, key)), purge.at)
            if reason:
                yield f"key {key} of {pod}, purged at {purge.at:.6f}: {reason}"


def _missing(answers: list[_Answer], pod: Pod, since: Since | None, purged_at: float) -> str:
    """What is wrong with the last answer before the purge; nothing when it or an earlier one will do.

    Mostly the last one does, since states only grow. But a stopped worker notes what it was answered before
    when it goes on, later than what its successor has noted of a newer state.
    """
    index = bisect_right(answers, purged_at, key=lambda answer: answer[0])
    if not index:
        return "no send of it was answered before"
    lacks = (_lack(answer, pod, since) for answer in reversed(answers[:index]))
    last = next(lacks)
    return last if last and all(lacks) else ""


def _lack(answer: _Answer, pod: Pod, since: Since | None) -> str:
    """Why an answer will not do."""
    answered, began, held = answer
    if began < pod.ts:
        return f"the last send answered before began at {began:.6f}, before the touch"
    reason = since.misses(held) if since is not None else ""
    return f"the last send answered before, at {answered:.6f}, {reason}" if reason else ""


def _known(changes: Iterable[Change]) -> Known:
    """The changes of a key are in the order of their commits, whatever the order of xids and touches."""
    found: Known = {}
    latest: dict[Key, Since] = {}
    for change in reversed(list(changes)):
        since = latest.get(change.key, Since(None, is_gone=False)).before(change.n)
        latest[change.key] = since
        found.setdefault((change.xid, change.key), since)
    return found


def _answers(window: Window) -> dict[Key, list[_Answer]]:
    found: dict[Key, list[_Answer]] = defaultdict(list)
    for call in window.calls:
        for key in call.answered:
            found[key].append((call.ended or 0.0, call.began, call.versions[key]))
    for answers in found.values():
        answers.sort(key=lambda answer: answer[0])
    return found


def purged_by_strangers(window: Window) -> Iterator[str]:
    """Purges under a term that was not, at that moment, the one of the pod's partition."""
    terms = {term.leader_id: term for term in window.terms}
    pods = {pod.seq: pod for pod in window.pods}
    for purge in window.purges:
        term = terms.get(purge.leader_id or "")
        pod = pods.get(purge.seq)
        if term is None:
            yield f"{purge}: no such term"
        elif not term.acquired_at <= purge.at <= (term.ended_at or purge.at):
            yield f"{purge}: outside of the time of {term}"
        elif pod is not None and not term.covers(pod.shard):
            yield f"{purge}: shard {pod.shard} is not in the partition of {term}"
