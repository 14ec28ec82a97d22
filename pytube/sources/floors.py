"""Floors: where the next scan of a partition may start, per class of pods. Pure.

A floor spares a mark the dead rows of purged pods. It may pass a pod only when the pod is held, is done, or
can never appear any more. The settled seq decides: all pods at or below it that will ever exist are visible
to a mark that begins after the seq was known.

Long-running transactions that may have drawn pods hold the settled seq back. So there is also a provisional
seq: settled, except for the pods of those transactions. Floors follow it until one of those transactions
ends, which gives the provisional seq a new version. Then scans restart from the settled floors, which follow
the settled seq only, and so find what the transaction wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytube.model import Pod, PodClass


class Floors:
    """The floors of one term. A new term, connection or partition count starts new ones."""

    def __init__(self) -> None:
        self._settled_floors = [0, 0]
        self._floors = [0, 0]
        self._version = 0

    def __getitem__(self, pod_class: PodClass) -> int:
        return self._floors[pod_class]

    def expire_provisional(self, provisional_version: int) -> None:
        """Call before a mark: if the provisional seq has a new version, fall back to the settled floors."""
        if provisional_version != self._version:
            self._version = provisional_version
            self._floors = list(self._settled_floors)

    def advance(
        self, pods: Sequence[Pod], limit: int, settled: int, *, with_backfill: bool, provisional: int = 0
    ) -> None:
        """Raise the floors after a mark.

        Args:
            pods: what the mark returned, incremental first.
            limit: how many it could return, of both classes together.
            settled: a seq known to be settled *before* the mark began; 0 when none is.
            with_backfill: whether it looked for backfill pods at all.
            provisional: the provisional seq before it began, of the version given to `expire_provisional`.
        """
        provisional = max(settled, provisional)
        split = next((i for i, pod in enumerate(pods) if pod.op == "B"), len(pods))
        self._raise(PodClass.INCREMENTAL, pods[:split], limit, settled, provisional)
        room = limit - split
        if with_backfill and room > 0:
            self._raise(PodClass.BACKFILL, pods[split:], room, settled, provisional)

    def _raise(
        self, pod_class: PodClass, pods: Sequence[Pod], limit: int, settled: int, provisional: int
    ) -> None:
        exhausted = len(pods) < limit
        # A scan that began above the settled floor says nothing about the pods in between.
        if self._settled_floors[pod_class] == self._floors[pod_class]:
            settled_floor = settled if exhausted else min(settled, pods[-1].seq)
            self._settled_floors[pod_class] = max(self._settled_floors[pod_class], settled_floor)
        floor = provisional if exhausted else min(provisional, pods[-1].seq)
        self._floors[pod_class] = max(self._floors[pod_class], floor)

    def lower(self, seqs: Sequence[int]) -> None:
        """Lower the floors so that the next scan finds these pods, which were given back."""
        if seqs:
            lowest = min(seqs) - 1
            self._settled_floors = [min(floor, lowest) for floor in self._settled_floors]
            self._floors = [min(floor, lowest) for floor in self._floors]
