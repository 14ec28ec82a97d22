"""Batches of documents: how large they get, and what a sink answered for one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pytube.errors import SinkContract
from pytube.model import (
    OK,
    Batch,
    Documents,
    Id,
    Key,
    Ok,
    Reject,
    Result,
    Retry,
    Stale,
    Token,
)

LONGEST_RETRY = 86_400.0
"""Seconds for which a sink may put a document off."""
_WEIGHT = 0.3
"""How much a lower value counts in a `high_average`."""
_CAUTIOUS = 64
"""Keys of a batch as long as no document was seen."""


# --- cutting ----------------------------------------------------------------------------------


def by_shard(keys: Iterable[Key]) -> dict[int, list[Id]]:
    """The ids of `keys`, by shard; order is kept within a shard."""
    groups: dict[int, list[Id]] = {}
    last: int | None = None
    group: list[Id] = []
    for shard, key in keys:
        if shard != last:
            group = groups.setdefault(shard, [])
            last = shard
        group.append(key)
    return groups


def keys_of(groups: Mapping[int, Iterable[Id]]) -> list[Key]:
    return [(shard, key) for shard, ids in groups.items() for key in ids]


def split(documents: Documents, most: Callable[[], int], max_bytes: int) -> Iterator[Documents]:
    """Runs of `documents` of at most so many bytes, and as many as `most` says when its turn has come.

    A larger document stands alone.
    """
    if len(documents) <= most() and documents.size <= max_bytes:
        if documents:
            yield documents
        return
    start = size = 0
    for index, length in enumerate(documents.sizes):
        if index > start and (index - start >= most() or size + length > max_bytes):
            yield documents[start:index]
            start, size = index, 0
        size += length
    if start < len(documents):
        yield documents[start:]


# --- sizes ------------------------------------------------------------------------------------


def high_average(before: float | None, value: float) -> float:
    """A moving average that follows a higher value at once and a lower one slowly; None: the first one.

    A limit that is derived from it is thus rarely exceeded.
    """
    return value if before is None else max(value, before + _WEIGHT * (value - before))


class BatchSize:
    """How many keys to read at once: large documents make small batches before memory is gone."""

    def __init__(self, max_keys: int, max_bytes: int) -> None:
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._average: float | None = None

    @property
    def keys(self) -> int:
        """Keys for the next batch: at least 1; few, as long as no document was seen."""
        if self._average is None:
            return min(_CAUTIOUS, self._max_keys)
        return max(1, min(self._max_keys, int(self._max_bytes / max(self._average, 1.0))))

    def observe(self, documents: int, size: int) -> None:
        if documents:
            self._average = high_average(self._average, size / documents)


# --- answers ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Answers:
    """The keys of a batch, by answer."""

    done: list[Key] = field(default_factory=list)
    delayed: dict[Key, float] = field(default_factory=dict)
    why_delayed: str = ""
    """Why the last of them was."""
    rejected: dict[Key, str] = field(default_factory=dict)
    newer: Token | None = None
    """The highest token of another term that the sink holds: this term is over."""


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
            case Retry(after=after, reason=reason):
                answers.delayed[document.key] = _checked(after)
                answers.why_delayed = reason
            case Reject(reason=reason):
                answers.rejected[document.key] = reason
            case Stale(newer=newer):
                _stale(answers, document.key, Token.parse(newer), batch.token)
            case _:
                raise SinkContract(f"the sink answered {result!r}, which is not a result")
    return answers


def last_written(documents: Documents, answers: Answers | None) -> Key | None:
    """The last key whose document, not a delete, the sink has taken; no answers: it has taken all."""
    done = None if answers is None else set(answers.done)
    taken = (one.key for one in reversed(documents) if one.body is not None)
    return next((key for key in taken if done is None or key in done), None)


def _stale(answers: Answers, key: Key, newer: Token, ours: Token) -> None:
    """An equal token is of this very write, done before; a newer one is of another term, and ends this one.

    Within a term a key is never written twice at once, and tokens only grow. So a newer token of the
    same epoch comes from a database that had issued that epoch before: it was restored, or failed over.
    """
    if newer < ours:
        raise SinkContract(
            f"the sink refused {key} for a newer write, but that write's token {newer} is lower than {ours}"
        )
    if newer == ours:
        answers.done.append(key)
    elif answers.newer is None or newer > answers.newer:
        answers.newer = newer


def _checked(after: float) -> float:
    """Seconds that a document may be put off; NaN or infinity would keep it for ever."""
    if not 0 <= after <= LONGEST_RETRY:
        raise SinkContract(f"the sink puts a document off by {after} s; 0 to {LONGEST_RETRY:g} are allowed")
    return after
