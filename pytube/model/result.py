"""What a sink answers for each document of a batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ok:
    """The write is durable at the sink, or a newer one of the same term is there already."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Not now (an overloaded sink): send again after `after` seconds. Uses up no attempt."""

    after: float
    reason: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Never: the sink will not take this document, whatever happens. It is parked."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stale:
    """The sink holds a write with the token `newer`, which is ours or higher.

    With our own token the write is done; with a higher one our term is over.
    """

    newer: int


Result = Ok | Retry | Reject | Stale

OK = Ok()
"""The one shared `Ok`, so that a whole batch is `[OK] * len(batch)`."""
