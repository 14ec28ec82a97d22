"""The contract of a sink: what it owes for each document, and what it may offer beside.

A sink never reorders two writes of a key once it has answered the first. It must never answer
`Ok` for a write that a crash of the sink could lose.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

from pytube.comparison import decode
from pytube.model import Batch, Id, Key, KeyType, Result, Token


@runtime_checkable
class Sink(Protocol):
    """A place for documents. One instance serves all partitions of one tube in one process.

    It is made outside of any event loop and used from one. `send` is called concurrently, but
    never with the same key in two calls at once.
    """

    compares: bool
    """Whether the sink itself refuses a write whose token is lower than the one it holds."""

    async def open(self) -> None:
        """Get ready. Does nothing when the sink is open; opens it again after `close`.

        Raises:
            ConfigError: the options are wrong.
            SinkUnavailable: the sink is down.
        """

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Write the batch, and answer each document in order.

        The caller limits the time by cancelling. A cancelled `send` raises at once; a write that
        it had begun may go on, see `abandon`.

        Raises:
            SinkUnavailable: the sink is down or closed, or `batch.send_before` had passed; it
                took none of the batch.
            SinkTimeout: the sink may have taken the batch or not.
            Exception: anything else means that the batch failed as a whole; the worker sends it
                again in halves, until the document at fault stands alone.
        """

    async def abandon(self, batch: Batch) -> None:
        """Return once no write of this very `batch` can overwrite a later one.

        The worker awaits it after `send(batch)` was cancelled or raised `SinkTimeout`, before it
        sends any key of the batch again. It returns at once if no write of the batch is under way.
        Else it lasts as long as that write: for ever, if the write hangs. So the caller may give
        up waiting and ask again later, but must not send these keys until it has returned. A sink
        that compares tokens may return at once, because there a late write loses.
        """

    async def close(self) -> None:
        """Release everything. Does nothing when the sink is closed; also called after `open` failed.

        No write begins after it. A `send` that has not begun to write raises `SinkUnavailable`;
        one that has begun goes on and gives its answer. `close` does not wait for a write that hangs.
        """


class SinkFactory(Protocol):
    """What an entry point of the group `pytube.sinks` names: as a rule, the sink's class."""

    def from_options(self, options: Mapping[str, object]) -> Sink:
        """The sink for the options of the configuration; `ConfigError` names a bad one."""


PAGE = 10_000
"""Ids that one page of a scan holds at most."""


@runtime_checkable
class Scanning(Protocol):
    """What a sink offers in addition to `Sink` if it can be scanned.

    After a backfill, the worker scans the sink for documents that the backfill has not written,
    and touches their keys: the documents that the source does not have are deleted that way. At a
    sink that can't be scanned, documents whose deletion was missed stay.
    """

    def cannot_scan(self) -> str | None:
        """Why this sink can't be scanned as it is configured; None when it can."""

    def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """The ids of the documents of that tube and shard whose stamp is lower, page by page.

        An id is an int or a str, as it was when it was written. Every such document that was
        acknowledged before the call is in one page. A document without a stamp counts as older
        than any. An id that is given twice, or although its document is newer, costs work, and does no harm.
        A page holds at most `PAGE` ids; memory must not grow with the number of documents.

        Raises:
            SinkUnavailable: the sink is down; the caller scans again later.
            SinkTimeout: the same, after a while.
        """


EVERY_SEQ = 2**63 - 1
"""As `below_seq` of a scan: all documents of the shard."""


@runtime_checkable
class Overlooking(Protocol):
    """What a sink offers in addition to `Scanning` if its scans may leave out documents of the tube."""

    def overlooked(self) -> str | None:
        """What the last scan of each shard has left out, in a sentence; None: nothing."""


class Stored:
    """What a sink holds of one key: a document or none, and the stamp of the write, as far as it is known."""

    __slots__ = ("_body", "_value", "seq", "token")

    def __init__(self, body: bytes | None = None, token: Token | None = None, seq: int | None = None) -> None:
        """`body` is the JSON text; None: there is no document. A tombstone may have a token all the same."""
        self._body = body
        self._value: Any = None
        self.token = token
        self.seq = seq

    @classmethod
    def decoded(cls, value: Any, token: Token | None = None, seq: int | None = None) -> Self:
        """A document that the store's client has decoded already."""
        stored = cls(None, token, seq)
        stored._value = (value,)
        return stored

    @property
    def exists(self) -> bool:
        """Whether there is a document."""
        return self._body is not None or self._value is not None

    @property
    def documents(self) -> int:
        """How many documents of the store it is: so often does a scan of all give the key."""
        return int(self.exists)

    @property
    def body(self) -> bytes | None:
        """The document's JSON text, perhaps with other blanks than were written; None: there is none."""
        if self._body is None and self._value is not None:
            self._body = json.dumps(self._value[0], ensure_ascii=False).encode("utf-8", "surrogatepass")
        return self._body

    @property
    def value(self) -> Any:
        """The document, decoded; None where there is none. `ValueError` when somebody has written no JSON."""
        if self._value is None and self._body is not None:
            self._value = (decode(self._body),)
        return None if self._value is None else self._value[0]


READ_MOST = 1000
"""Keys that one `read` is asked for at most."""

HOLDS_NOTHING = b""
"""As an answer of `as_held`: once the document was written, the sink holds none of its key."""


@runtime_checkable
class Reading(Protocol):
    """What a sink offers in addition to `Sink` if its documents can be read back.

    Operators look at documents with it, and `pytube verify` compares them with the source. Workers don't
    use it.
    """

    def cannot_read(self) -> str | None:
        """Why the documents can't be read as the sink is configured; None when they can."""

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """What the sink holds now of each of these keys, at most `READ_MOST`.

        It sees every write that was acknowledged before the call. Fields of the sink's own are left out.

        Raises:
            SinkUnavailable: the sink is down; the caller reads again later.
            SinkTimeout: the same, after a while.
        """

    async def as_held(self, bodies: Sequence[bytes]) -> Sequence[bytes | None]:
        """What `read` would give for each of these documents once it was written.

        That is the same document at most sinks; another at one that keeps some fields only, or in other
        types. None: the sink would reject it. `HOLDS_NOTHING`: to write it deletes what is there.
        """


@runtime_checkable
class Bounded(Protocol):
    """What a sink offers in addition to `Sink` if its own time-out ends its writes.

    A successor waits until a request that its predecessor had sent has timed out. So the worker refuses to
    start unless `write_timeout` is at most its `request_timeout`.
    """

    write_timeout: float
    """Seconds after the begin of a write by which the client has given it up."""


@runtime_checkable
class Keyed(Protocol):
    """What a sink offers in addition to `Sink` if its options say which ids it can hold."""

    def cannot_hold(self, keys: KeyType) -> str | None:
        """Why ids of that type can't be written as it is configured; None: they can, or it can't tell."""


def why_no_scan(sink: Sink) -> str | None:
    """Why `sink` can't be scanned; None when it can."""
    if not isinstance(sink, Scanning):
        return "the sink can't be scanned"
    return sink.cannot_scan()


def why_no_read(sink: Sink) -> str | None:
    """Why documents of `sink` can't be read back; None when they can."""
    if not isinstance(sink, Reading):
        return "the sink's documents can't be read back"
    return sink.cannot_read()
