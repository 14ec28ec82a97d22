"""Sorts what a sink answered for a batch. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytube.errors import SinkContract
from pytube.model import OK, Batch, Key, Ok, Reject, Result, Retry, Stale, Token

LONGEST_RETRY = 86_400.0
"""Seconds for which a sink may put a document off."""


@dataclass(slots=True)
class Answers:
    """The keys of a batch, by answer."""

    done: list[Key] = field(default_factory=list)
    delayed: dict[Key, float] = field(default_factory=dict)
    rejected: dict[Key, str] = field(default_factory=dict)
    newer: Token | None = None
    """The highest token of another term that the sink holds: our own term is over."""


def is_all_ok(batch: Batch, results: Sequence[Result]) -> bool:
    """Whether every document is done, and there is nothing to sort: by far the most frequent case."""
    return len(results) == len(batch) == list(results).count(OK)


def sort_answers(batch: Batch, results: Sequence[Result]) -> Answers:
    """Sort `results`.

    Raises:
        SinkContract: there are not as many results as documents, or one is of no known type,
            or a write was refused for one with a lower token.
    """
    if len(results) != len(batch):
        raise SinkContract(f"the sink answered {len(results)} results for {len(batch)} documents")
    answers = Answers()
    for document, result in zip(batch, results, strict=True):
        match result:
            case Ok():
                answers.done.append(document.key)
            case Retry(after=after):
                answers.delayed[document.key] = _checked(after)
            case Reject(reason=reason):
                answers.rejected[document.key] = reason
            case Stale(newer=newer):
                _stale(answers, document.key, Token.parse(newer), batch.token)
            case _:
                raise SinkContract(f"the sink answered {result!r}, which is not a result")
    return answers


def _stale(answers: Answers, key: Key, newer: Token, ours: Token) -> None:
    """Our own token is that of our own write, done before; a newer one is not ours, and ends our term.

    Within a term a key is never written twice at once, and tokens only grow. So a newer token of our
    own epoch comes from a database that had issued that epoch before: it was restored, or failed over.
    """
    if newer < ours:
        raise SinkContract(
            f"the sink refused {key} for a newer write, but its token {newer} is lower than ours"
        )
    if newer == ours:
        answers.done.append(key)
    elif answers.newer is None or newer > answers.newer:
        answers.newer = newer


def _checked(after: float) -> float:
    """Seconds that a document may be put off; what is no such number would keep it for ever."""
    if not 0 <= after <= LONGEST_RETRY:
        raise SinkContract(f"the sink puts a document off by {after} s; 0 to {LONGEST_RETRY:g} are allowed")
    return after
