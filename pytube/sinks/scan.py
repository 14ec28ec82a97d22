"""What a sink may offer beside writing: to say which documents of a shard are old.

After a backfill, documents that it has not written are looked for at the sink and touched: those
that the source does not have any more are deleted so. A sink that can't look is no worse for the
rest; documents whose deletion was missed, before pytube came, stay there then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

from pytube.model import Id
from pytube.sinks.base import Sink

PAGE = 10_000
"""Ids that a page holds at most."""


@runtime_checkable
class Scanning(Protocol):
    """A sink that can be looked through, in addition to what `Sink` asks."""

    def cannot_scan(self) -> str | None:
        """Why this one can't after all, as it is configured; None when it can."""

    def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """The ids of documents of that tube and shard whose stamp is lower, page by page.

        An id is an int or a str, as it was when it was written.
        Every such document that was acknowledged before the call is in one page. A document
        without a stamp counts as older than any. One that is given although it is newer costs work,
        and does no harm. At most `PAGE` ids a page; memory must not grow with the number of documents.

        Raises:
            SinkUnavailable: the sink is down; the caller begins anew later.
            SinkTimeout: the same, after a while.
        """


def why_no_scan(sink: Sink) -> str | None:
    """Why `sink` can't be looked through; None when it can."""
    if not isinstance(sink, Scanning):
        return "the sink can't be looked through"
    return sink.cannot_scan()
