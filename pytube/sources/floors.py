"""Floors: where the next scan of a partition may start, per class of pods. Pure.

A floor spares a mark the dead rows of what was purged before. It may pass a pod only when that
pod is held, is done, or can never appear any more. The settled seq decides: all pods at or below
it that will ever exist are visible to a mark begun after it was known.

Transactions that stay open for long, and may have drawn pods, keep the settled seq where it is. So
there is a second, passable seq, to which the same applies but for the pods of those few. Floors
follow it for a spell: until one of them is over. Then scans start again from the firm floors, which
know the settled seq only, and so find what those transactions wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytube.model import Pod, PodClass


class Floors:
    """The floors of one term. A new term, connection or partition count starts new ones."""

    def __init__(self) -> None:
        self._firm = [0, 0]
        self._floors = [0, 0]
        self._spell = 0

    def __getitem__(self, pod_class: PodClass) -> int:
        return self._floors[pod_class]

    def in_spell(self, spell: int) -> None:
        """Before a mark: which spell the passable seq is of. In another one, the floors are the firm ones."""
        if spell != self._spell:
            self._spell = spell
            self._floors = list(self._firm)

    def marked(
        self, pods: Sequence[Pod], limit: int, settled: int, *, with_backfill: bool, passable: int = 0
    ) -> None:
        """Take note of what a mark gave.

        Args:
            pods: what it returned, incremental first.
            limit: how many it was allowed to return, of both classes together.
            settled: a seq known to be settled *before* the mark began; 0 when none is.
            with_backfill: whether it looked for backfill pods at all.
            passable: a seq known to be passable before it began, of the spell that was told.
        """
        passable = max(settled, passable)
        split = next((i for i, pod in enumerate(pods) if pod.op == "B"), len(pods))
        self._raise(PodClass.INCREMENTAL, pods[:split], limit, settled, passable)
        room = limit - split
        if with_backfill and room > 0:
            self._raise(PodClass.BACKFILL, pods[split:], room, settled, passable)

    def _raise(
        self, pod_class: PodClass, pods: Sequence[Pod], limit: int, settled: int, passable: int
    ) -> None:
        exhausted = len(pods) < limit
        # A scan from above the firm floor says nothing of what is between.
        if self._firm[pod_class] == self._floors[pod_class]:
            firm = settled if exhausted else min(settled, pods[-1].seq)
            self._firm[pod_class] = max(self._firm[pod_class], firm)
        floor = passable if exhausted else min(passable, pods[-1].seq)
        self._floors[pod_class] = max(self._floors[pod_class], floor)

    def lowered(self, seqs: Sequence[int]) -> None:
        """Pods were given back: the next scan has to see them."""
        if seqs:
            lowest = min(seqs) - 1
            self._firm = [min(floor, lowest) for floor in self._firm]
            self._floors = [min(floor, lowest) for floor in self._floors]
