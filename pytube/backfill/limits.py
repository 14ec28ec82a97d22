"""What a backfill slows itself for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from pytube.config import BackfillConfig

_MB = 1024 * 1024


class Replica(NamedTuple):
    """How far a replica is behind."""

    name: str
    lag: float | None
    """Seconds, by its own account."""
    behind: int | None
    """Bytes of WAL that it lacks."""


class Pressure(NamedTuple):
    """How the tube and the replicas are doing; see `tube_backfill_pressure`."""

    waiting: int
    replicas: tuple[Replica, ...] = ()


@dataclass(frozen=True, slots=True)
class BackfillLimits:
    """See `BackfillConfig` for what each means; None is none."""

    backlog: int = 2000
    replica_lag: float | None = 10.0
    replica_behind: int | None = 256
    rate: float | None = None
    chunk: int = 40

    @classmethod
    def of(cls, config: BackfillConfig) -> Self:
        """As configured."""
        return cls(
            config.backlog,
            config.replica_lag,
            config.replica_behind,
            config.rate,
            config.chunk,
        )

    def reason(self, pressure: Pressure) -> str | None:
        """Why nothing is to be inserted now; None when it may go on."""
        if pressure.waiting >= self.backlog:
            return f"{pressure.waiting} backfill pods or more wait in the tube (limit {self.backlog})"
        return self._slowest(pressure.replicas) or self._furthest(pressure.replicas)

    def _slowest(self, replicas: Sequence[Replica]) -> str | None:
        lag, name = max(((one.lag or 0.0, one.name) for one in replicas), default=(0.0, ""))
        if self.replica_lag is None or lag <= self.replica_lag:
            return None
        return f"the replica {name} is {lag:.1f} s behind (limit {self.replica_lag:g} s)"

    def _furthest(self, replicas: Sequence[Replica]) -> str | None:
        behind, name = max(((one.behind or 0, one.name) for one in replicas), default=(0, ""))
        if self.replica_behind is None or behind <= self.replica_behind * _MB:
            return None
        return f"the replica {name} lacks {behind // _MB} MB of WAL (limit {self.replica_behind} MB)"
