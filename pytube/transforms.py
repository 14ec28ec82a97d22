"""Transforms: the user's functions between the read of a document and its send. See docs/transforms.md.

A transform runs in the event loop. So between documents the loop gets its turn every few milliseconds, and a
call that keeps it for long is logged.
"""

from __future__ import annotations

import asyncio
import enum
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from pytube.config.section import key_path
from pytube.errors import OUTAGES, ConfigError
from pytube.logs import Logger, UserFaults
from pytube.model import Document, Documents, Id, Key, Token
from pytube.targets import import_target, is_async

_SLICE = 0.005
"""Seconds after which the event loop gets its turn."""
_SLOW = 0.5
"""Seconds for one document after which the call is logged: all else in the process waited for it."""
_QUIET = 60.0
"""Seconds for which no further slow call is logged."""
_LONGEST_REASON = 500
"""Characters of a reason that are kept with a parked document."""


class Answer(enum.Enum):
    """What a transform may return instead of a document."""

    KEEP = "keep"
    SKIP = "skip"
    DELETE = "delete"


KEEP: Final = Answer.KEEP
"""Send the document as the transform got it, to the last digit; a delete stays a delete."""
SKIP: Final = Answer.SKIP
"""Send nothing. The touch counts as acknowledged; what the sink holds of the key stays there."""
DELETE: Final = Answer.DELETE
"""Delete the key at the sink."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a transform gets."""

    op: Literal["upsert", "delete"]
    id: Id
    """Of the row: an int where the tube's keys are bigint; a str where they are uuid or text."""
    document: Any
    """The decoded JSON, this call's own; None for a delete."""
    token: Token
    seq: int
    """The newest touch that the worker knew when it began with the key."""
    ts: float
    """When that touch was inserted: Unix seconds, by the database's clock."""
    tube: str
    shard: int
    table: str | None
    """The root table, as `schema.table` without quotes; None where `mode = "none"` reads no table."""

    @property
    def key(self) -> Key:
        """`(shard, id)`: names the document at every sink."""
        return self.shard, self.id


@dataclass(frozen=True, slots=True)
class Origin:
    """What the documents of one read have in common."""

    tube: str
    partition: int
    ts: float
    tables: Mapping[int, str | None]
    """The root table of each shard."""


@dataclass(slots=True)
class Transformed:
    """The results for documents. Each of their keys is in exactly one of these places."""

    documents: Documents
    """To be sent."""
    skipped: list[Key] = field(default_factory=list)
    rejected: dict[Key, str] = field(default_factory=dict)
    """Why each can't be sent."""


class _Refused(Exception):
    """One document can't be sent; the message says why."""


class Transforms:
    """The transforms of one tube, one after the other."""

    def __init__(
        self,
        functions: Sequence[tuple[str, Callable[[Change], Any]]],
        log: Logger,
        faults: UserFaults,
        *,
        splits: bool = False,
    ) -> None:
        """Args:
        functions: in order, each with the name that errors give it.
        log: gets slow calls.
        faults: logs the functions' errors.
        splits: whether the sink splits their results into parts, so that a list may be one.
        """
        self._functions = functions
        self._splits = splits
        self._log = log
        self._faults = faults
        self._quiet_until = float("-inf")

    @classmethod
    def load(
        cls, targets: Sequence[str], tube: str, log: Logger, faults: UserFaults, *, splits: bool = False
    ) -> Self | None:
        """Import the functions that a tube's configuration names; None where it names none.

        Raises:
            ConfigError: one is not there, or can't be a transform.
        """
        key = f"key {key_path(('tube', tube, 'transforms'))}"
        functions = [(target, _import(target, key)) for target in targets]
        return cls(functions, log, faults, splits=splits) if functions else None

    async def apply(self, documents: Documents, origin: Origin) -> Transformed:
        """Run the transforms on each of the documents; an exception rejects that document alone."""
        came = Transformed(Documents(documents.token, documents.seq))
        turn = began = time.monotonic()
        for document in documents:
            try:
                body = self._transform(document, origin)
            except _Refused as error:
                came.rejected[document.key] = str(error)[:_LONGEST_REASON]
            else:
                if body is SKIP:
                    came.skipped.append(document.key)
                else:
                    came.documents.add(document.shard, [document.id], [body])
            now = time.monotonic()
            if now - began >= _SLOW:
                self._tell_slow(document, origin, now - began)
            if now - turn >= _SLICE:
                await asyncio.sleep(0)
                turn = now = time.monotonic()
            began = now
        return came

    def _transform(self, document: Document, origin: Origin) -> bytes | Literal[Answer.SKIP] | None:
        body = document.body
        for name, function in self._functions:
            # Decoded again for each, so that what one does to its input is not seen by the next.
            change = _change(document, body, origin)
            try:
                answer: object = function(change)
            except (Exception, SystemExit) as error:  # the latter would stop the event loop
                if not isinstance(error, OUTAGES):  # raised on purpose: the reason of the parked document
                    self._faults.log("transform", error, partition=origin.partition)
                raise _Refused(f"transform {name} raised {type(error).__name__}: {error}") from error
            if answer is SKIP:
                return SKIP
            if answer is DELETE:
                body = None
            elif answer is not KEEP:
                body = _encode(name, answer, splits=self._splits)
        return body

    def _tell_slow(self, document: Document, origin: Origin, seconds: float) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET
            self._log.warning(
                "transform_slow",
                partition=origin.partition,
                shard=document.shard,
                id=document.id,
                seconds=round(seconds, 3),
            )


def _import(target: str, key: str) -> Callable[[Change], Any]:
    function = import_target(target, key)
    if is_async(function):
        raise ConfigError(
            f'{key} = "{target}": it is a coroutine function; define it with def, and leave I/O to the query '
            "or the sink"
        )
    return function


def _change(document: Document, body: bytes | None, origin: Origin) -> Change:
    try:
        decoded = None if body is None else json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Refused(f"the document can't be decoded for its transform: {error}") from error
    return Change(
        "delete" if body is None else "upsert",
        document.id,
        decoded,
        document.token,
        document.seq,
        origin.ts,
        origin.tube,
        document.shard,
        origin.tables.get(document.shard),
    )


def _encode(name: str, answer: object, *, splits: bool) -> bytes:
    """The JSON text of a document; NaN and infinite numbers have none."""
    if answer is None:
        raise _Refused(f"transform {name} returned None; return a document, KEEP, SKIP or DELETE")
    if isinstance(answer, list | tuple) and not splits:
        raise _Refused(
            f"transform {name} returned a {type(answer).__name__}, but a row is one document; for several, "
            "declare the sink's `parts`; else return one document, KEEP, SKIP or DELETE"
        )
    try:
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except Exception as error:  # the items of a dict may be the user's code, too
        raise _Refused(f"transform {name} returned a value that is not valid JSON: {error}") from error
