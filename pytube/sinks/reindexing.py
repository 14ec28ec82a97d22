"""What a sink offers in addition if a second copy can be filled beside the live one, and take its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from pytube.sinks.base import Sink


@dataclass(frozen=True, slots=True)
class ReindexState:
    """A reindex that is under way."""

    tube: str
    old: str | None
    """The name of the copy from which to move; None when somebody has deleted it."""
    new: str | None
    """The name of the copy that is filled; None when somebody has deleted it."""
    is_switched: bool
    """Whether readers see the new copy."""
    started_at: datetime
    backfills: tuple[int, ...]
    """The numbers of those that fill the new copy; none while it is not known that one was begun."""


class Reindexer(Protocol):
    """Moves a sink to a new copy, step by step.

    All state is at the sink. Each step that changes what workers write or readers see is one change there,
    which is made as a whole or not at all. Methods raise `SinkUnavailable` and `SinkTimeout`, and
    `UsageError` when the sink is not in the state that they need.
    """

    async def look(self) -> ReindexState | None:
        """What is under way; None when nothing is."""

    async def begin(self, tube: str) -> ReindexState:
        """Make the new copy, and have every write from now on go to both; goes on with one that has begun.

        When it returns, whatever a worker writes to the old copy alone was read from the source before this
        call ended. So a backfill that begins afterwards misses nothing.
        """

    async def record(self, backfills: Sequence[int]) -> None:
        """Keep the numbers of the backfills that fill the new copy."""

    async def count(self, name: str) -> int:
        """The documents in a copy."""

    async def switch(self, *, back: bool = False) -> None:
        """Have readers see the new copy, in one step; or the old one again."""

    async def finish(self, *, force: bool = False) -> None:
        """Delete the old copy, and write to the new one alone.

        Raises:
            UsageError: writes that began before the reindex might still come; `force` does it all the same.
        """

    async def abandon(self) -> bool:
        """Delete the new copy, and write to the old one alone; False when there was nothing to delete."""

    def options_of(self, name: str) -> Mapping[str, object]:
        """Options that, in place of the configured ones, make a sink of one copy alone, to read it."""

    async def close(self) -> None:
        """Release everything."""


@runtime_checkable
class Reindexing(Protocol):
    """A sink that can be reindexed: a new copy is filled while the old one stays live."""

    def cannot_reindex(self) -> str | None:
        """Why this sink can't be reindexed as it is configured; None when it can."""

    def reindexer(self) -> Reindexer:
        """What does it. Nothing is opened yet."""


def why_no_reindex(sink: Sink) -> str | None:
    """Why `sink` can't be reindexed; None when it can."""
    if not isinstance(sink, Reindexing):
        return "only a sink that has an alias for its documents can be, such as opensearch"
    return sink.cannot_reindex()
