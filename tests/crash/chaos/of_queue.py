"""What must hold between the source's changes, the touches they made, and the purges of these."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.crash.chaos.records import Change, Key, Pod, Window

Versions = dict[tuple[int, Key], int | None]
"""By transaction and key, what it left: the greatest `n`, or None when all it did was to delete."""

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
    versions = _versions(window.changes)
    answers = _answers(window)
    for purge in window.purges:
        pod = pods.get(purge.seq)
        if pod is None:
            yield f"{purge} is of a pod that nobody has seen"
            continue
        for number in pod.ids:
            key = (pod.shard, number)
            wanted = versions.get((pod.xid, key))
            reason = _missing(answers.get(key, []), pod, wanted, purge.at)
            if reason:
                yield f"key {key} of {pod}, which left n = {wanted}, purged at {purge.at:.6f}: {reason}"


def _missing(answers: list[_Answer], pod: Pod, wanted: int | None, purged_at: float) -> str:
    """What is wrong with the last answer before the purge; nothing when it will do.

    States only grow, so if any answer will do, the last one does.
    """
    index = bisect_right(answers, purged_at, key=lambda answer: answer[0])
    if not index:
        return "no send of it was answered before"
    answered, began, held = answers[index - 1]
    if began < pod.ts:
        return f"the last send answered before began at {began:.6f}, before the touch"
    if wanted is not None and held is not None and held < wanted:
        return f"the last send answered before, at {answered:.6f}, held n = {held}"
    return ""


def _versions(changes: Iterable[Change]) -> Versions:
    found: Versions = {}
    for change in changes:
        place = change.xid, change.key
        known = found.get(place)
        found[place] = change.n if known is None else max(known, change.n or 0)
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
