"""What a sink offers in addition if the conformance suite may be run against its real store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pytube.model import Key, KeyType
from pytube.sinks.base import Sink

Erase = Callable[[str, Collection[Key]], Awaitable[None]]
"""Deletes all that the sink of a trial has written: the documents of these keys of a tube, and what is around
them."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A place of its own at the store of a sink, for documents that nobody reads."""

    make_sink: Callable[[], Sink]
    """Makes a sink, not open, that writes there; else it is as configured. Called several times."""
    where: str
    """The name of the place, e.g. of an index."""
    erase: Erase | None
    """None: what is written can't be taken back."""
    notes: tuple[str, ...] = ()
    """What of the configuration is not used, and so not judged."""
    tube: str = "conformance"
    """Of the documents that are sent."""


@runtime_checkable
class Trying(Protocol):
    """A sink that `pytube sink check` can judge."""

    def trial(self, name: str, keys: KeyType) -> Trial:
        """A place of its own, for ids of that type; nothing is created yet.

        Args:
            name: of the trial: lower-case letters, digits and hyphens; new each time.
            keys: `BIGINT` or `TEXT`.

        Raises:
            ConfigError: there is none, as the sink is configured.
        """


def of_the_suite(what: str) -> str:
    """The note that the suite has something of its own."""
    return f"{what} is the suite's own, and that of the configuration is not judged"
