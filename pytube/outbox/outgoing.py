"""The ways of records to Kafka, as the worker of a partition sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pytube.outbox.records import Chunk, EarlierTerm, Failure, Sent


class Outgoing(Protocol):
    """A way of one term's records to Kafka."""

    async def open(self, earlier: Sequence[EarlierTerm]) -> Sequence[Sent]:
        """Begin, before the first mark; what earlier terms have sent, and perhaps purged.

        Raises:
            BrokerUnavailable: no broker answers, or it refuses us.
        """

    def send(self, chunk: Chunk) -> None:
        """Hand a chunk over; the caller has looked whether it may send."""

    def settled(self) -> list[tuple[Chunk, Mapping[int, Failure]]]:
        """Chunks that are decided since the last call, and what of them failed, by id."""

    def confirm_purged(self, chunks: int) -> None:
        """So many chunks, of those that `settled` gave first, are purged, and that is on the disk."""

    @property
    def is_busy(self) -> bool:
        """Whether chunks are under way."""

    @property
    def has_room(self) -> bool:
        """Whether a chunk may be handed over."""

    @property
    def needs_poll(self) -> bool:
        """Whether only `settled` learns what is decided; else the term's attention is drawn to it."""

    @property
    def answer_due(self) -> float | None:
        """When, by the monotonic clock, librdkafka has to have returned from a call; None: from none."""

    def check(self) -> None:
        """Look whether it has.

        Raises:
            BrokerUnavailable: it has not: nothing more comes of this way.
        """

    @property
    def why_stuck(self) -> str | None:
        """Why what became of chunks can't be learned now; None: it can."""

    def stop_sending(self) -> None:
        """Send nothing that is not on its way yet."""

    def stop(self) -> None:
        """Give up what is not answered, too: it may still be written."""
