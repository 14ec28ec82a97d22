"""Whose turn it is where live changes and a backfill wait for a session, a batch, or a request. Pure."""

from __future__ import annotations

from pytube.model import PodClass

BACKFILL_SHARE = 0.2
"""Of the turns, unless a tube has another setting."""


class BackfillShare:
    """Live changes before backfill; of the turns for which both wait, backfill gets `share`.

    Turns count, not documents. A read or a send takes about as long for a few documents as for a full batch,
    so backfill would get next to nothing beside live changes that trickle. Where the last of the live changes
    that waited had its turn, the next one is backfill's, even if others came: a trickle is not held up by
    more than that, and changes of that time share a batch.
    """

    def __init__(self, share: float = BACKFILL_SHARE) -> None:
        self._earns = share / max(1e-9, 1 - share)
        """Turns that each turn of live changes earns."""
        self._credit = 0.0

    def choose(self, *, incremental: int, backfill: int) -> PodClass | None:
        """Whose turn it is, given how many of each wait; None when none does."""
        if incremental and backfill:
            return PodClass.BACKFILL if self._credit >= 1 else PodClass.INCREMENTAL
        if incremental or backfill:
            return PodClass.INCREMENTAL if incremental else PodClass.BACKFILL
        return None

    def record(self, pod_class: PodClass, *, incremental: int, backfill: int) -> None:
        """The class had a turn, and so many of each still wait; backfill earns turns only while it waits."""
        if pod_class is PodClass.BACKFILL:
            self._credit = max(0.0, self._credit - 1) if incremental else 0.0
        elif not backfill:
            self._credit = 0.0
        else:
            self._credit += self._earns if incremental else max(1.0, self._earns)
