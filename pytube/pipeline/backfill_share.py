"""Which class of keys the next flight takes. Pure."""

from __future__ import annotations

from pytube.model import PodClass


class BackfillShare:
    """Incremental before backfill; when both wait, backfill gets `share` of the keys sent."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit = 0.0

    def choose(self, *, incremental: int, backfill: int) -> PodClass | None:
        """The class to take from, given how many keys of each wait; None when none does."""
        if incremental and backfill:
            return PodClass.BACKFILL if self._credit >= 1 else PodClass.INCREMENTAL
        if incremental or backfill:
            return PodClass.INCREMENTAL if incremental else PodClass.BACKFILL
        return None

    def record(self, pod_class: PodClass, keys: int, *, both_waited: bool) -> None:
        """Record that `keys` were taken from the class; backfill earns its share only while both wait."""
        if not both_waited:
            self._credit = 0.0
        elif pod_class is PodClass.INCREMENTAL:
            self._credit += keys * self._share / max(1e-9, 1 - self._share)
        else:
            self._credit -= keys
