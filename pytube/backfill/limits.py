"""What a backfill slows itself for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

from pytube.config import BackfillConfig

_MB = 1024 * 1024


class Pressure(NamedTuple):
    """How the tube and the replicas are doing; see `tube_backfill_pressure`."""

    waiting: int
    replica: str | None
    replica_lag: float | None
    replica_behind: int | None


@dataclass(frozen=True, slots=True)
class BackfillLimits:
    """See `BackfillConfig` for what each means."""

    backlog: int = 2000
    replica_lag: float = 10.0
    replica_behind: int = 256
    rate: float | None = None
    chunk: int = 40

    @classmethod
    def of(cls, config: BackfillConfig) -> Self:
        """As configured."""
        return cls(config.backlog, config.replica_lag, config.replica_behind, config.rate, config.chunk)

    def reason(self, pressure: Pressure) -> str | None:
        """Why nothing is to be inserted now; None when it may go on."""
        if pressure.waiting >= self.backlog:
            return f"{pressure.waiting} backfill pods or more wait in the tube (limit {self.backlog})"
        lag = pressure.replica_lag
        if lag is not None and lag > self.replica_lag:
            return f"the replica {pressure.replica} is {lag:.1f} s behind (limit {self.replica_lag:g} s)"
        behind = pressure.replica_behind
        if behind is not None and behind > self.replica_behind * _MB:
            lacks = f"{behind // _MB} MB of WAL (limit {self.replica_behind} MB)"
            return f"the replica {pressure.replica} lacks {lacks}"
        return None
