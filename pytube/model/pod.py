"""A pod: one row of a tube, as a mark returns it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pytube.model.key import Id


class PodClass(enum.IntEnum):
    """The two classes of a partition's queue; incremental pods go before backfill pods."""

    INCREMENTAL = 0
    BACKFILL = 1


class Pod(NamedTuple):
    """Touches of one shard, drawn at one `seq`. The fields are a mark's columns, in order.

    A pod without ids and with a payload is a control pod. A named tuple, because a worker makes
    hundreds of thousands of these a second.
    """

    seq: int
    op: str
    shard: int
    ids: Sequence[Id]
    payload: Mapping[str, Any] | None = None
    ts: float = 0.0
    """Unix seconds at which the pod was inserted, by the database's clock."""

    @property
    def pod_class(self) -> PodClass:
        """Backfill for op B, incremental for every other op."""
        return PodClass.BACKFILL if self.op == "B" else PodClass.INCREMENTAL

    @property
    def is_control(self) -> bool:
        """Whether the pod carries a message to the worker instead of touches."""
        return not self.ids
