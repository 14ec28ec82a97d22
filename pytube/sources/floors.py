"""Floors: where the next scan of a partition may start, per class of pods. Pure.

A floor spares a mark the dead rows of what was purged before. It may pass a pod only when that
pod is held, is done, or can never appear any more. The settled seq decides: all pods at or below
it that will ever exist are visible to a mark begun after it was known.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytube.model import Pod, PodClass


class Floors:
    """The two floors of one term. A new term, connection or partition count starts a new one."""

    def __init__(self) -> None:
        self._floors = [0, 0]

    def __getitem__(self, pod_class: PodClass) -> int:
        return self._floors[pod_class]

    def marked(self, pods: Sequence[Pod], limit: int, settled: int, *, with_backfill: bool) -> None:
        """Take note of what a mark gave.

        Args:
            pods: what it returned, incremental first.
            limit: how many it was allowed to return, of both classes together.
            settled: a seq known to be settled *before* the mark began; 0 when none is.
            with_backfill: whether it looked for backfill pods at all.
        """
        split = next((i for i, pod in enumerate(pods) if pod.op == "B"), len(pods))
        self._raise(PodClass.INCREMENTAL, pods[:split], limit, settled)
        room = limit - split
        if with_backfill and room > 0:
            self._raise(PodClass.BACKFILL, pods[split:], room, settled)

    def _raise(self, pod_class: PodClass, pods: Sequence[Pod], limit: int, settled: int) -> None:
        exhausted = len(pods) < limit
        floor = settled if exhausted else min(settled, pods[-1].seq)
        self._floors[pod_class] = max(self._floors[pod_class], floor)

    def lowered(self, seqs: Sequence[int]) -> None:
        """Pods were given back: the next scan has to see them."""
        if seqs:
            lowest = min(seqs) - 1
            self._floors = [min(floor, lowest) for floor in self._floors]
