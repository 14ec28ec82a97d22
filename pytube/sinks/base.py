"""The contract of a sink: its duties for each document, and its optional features; and what many sinks need.

A sink never reorders two writes of a key once it has answered the first. It must never answer
`Ok` for a write that a crash of the sink could lose.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from pytube.comparison import decode
from pytube.errors import SinkError, SinkUnavailable
from pytube.model import Batch, Id, Key, KeyType, Result, Token
from pytube.threads import Handed

T = TypeVar("T")


@runtime_checkable
class Sink(Protocol):
    """A place for documents. One instance serves all partitions of one tube in one process.

    It is made outside of any event loop and used from one. `send` is called concurrently, but
    never with the same key in two calls at once.
    """

    compares: bool
    """Whether the sink itself refuses a write whose token is lower than the one it holds."""

    async def open(self) -> None:
        """Get ready. Does nothing when the sink is open; opens it again after `close`. One call at a time.

        Raises:
            ConfigError: the options are wrong.
            SinkUnavailable: the sink is down.
        """

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Write the batch, and answer each document in order.

        The caller limits the time by cancelling. A cancelled `send` raises at once; a write that
        it had begun may continue, see `abandon`.

        Raises:
            SinkUnavailable: the sink is down or closed, or `batch.send_before` had passed; it
                took none of the batch.
            SinkTimeout: the sink may have taken the batch or not.
            Exception: anything else means that the batch failed as a whole; the worker sends it
                again in parts, until the document at fault stands alone.
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
        a write that has begun continues and gives its answer. `close` does not wait for a write that hangs.
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

    It may have `cannot_scan()`: why it can't be scanned as it is configured; None when it can.
    """

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


@dataclass(frozen=True, slots=True)
class Stored:
    """What a sink holds of one key: a document or none, and the stamp of the write, as far as it is known."""

    body: bytes | None = None
    """The document's JSON text, perhaps with other blanks than were written; None: there is no document."""
    token: Token | None = None
    """A tombstone may have one, too."""
    seq: int | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a document."""
        return self.body is not None

    @property
    def value(self) -> Any:
        """The document, decoded; None without one. `ValueError` if another writer stored invalid JSON."""
        return None if self.body is None else decode(self.body)


READ_MOST = 1000
"""Keys that one `read` is asked for at most."""

HOLDS_NOTHING = b""
"""As an answer of `as_held`: once the document was written, the sink holds none of its key."""


@runtime_checkable
class Reading(Protocol):
    """What a sink offers in addition to `Sink` if its documents can be read back.

    Operators look at documents with it, and `pytube verify` compares them with the source. Workers don't
    use it.

    It may have `cannot_read()`: why they can't be read as it is configured; None when they can. A sink that
    holds documents in another form than they were sent in has `as_held(bodies)`, see `held_forms`.
    """

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """What the sink holds now of each of these keys, at most `READ_MOST`.

        It sees every write that was acknowledged before the call. Fields of the sink's own are left out.

        Raises:
            SinkUnavailable: the sink is down; the caller reads again later.
            SinkTimeout: the same, after a while.
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
        """Why ids of that type can't be written as it is configured; None: they can, or it does not know."""


@runtime_checkable
class Making(Protocol):
    """The addition to `Sink` for a sink whose `open` may make or change something, such as an index.

    Commands that only look open the sink by it.
    """

    async def open_existing(self) -> str | None:
        """As `open`, but make and change nothing; None: it is open.

        Else the missing objects that `open` would make, as a sentence that could end in "; a worker makes
        it". The sink is not open then. Raises as `open`.
        """


@runtime_checkable
class Marked(Protocol):
    """The addition to `Sink` for a sink that can notice the loss of its documents.

    A worker asks for the mark every few seconds, in one process of many at the same time, and keeps it in
    Postgres. Another mark, or none, where there was one means: the documents are gone, or are others.

    It may have `cannot_mark()`: why there is no mark as it is configured; None when there is one.
    """

    async def read_mark(self, tube: str) -> str | None:
        """The mark of the place that holds the documents of `tube`, in one cheap request.

        It stays the same for as long as nothing else than `send` has removed documents, and changes when all
        are gone: a mark that was written there with them, or what the server itself calls the place (the
        id that it gave to a table). None: the place has no mark, or is gone.

        Raises:
            SinkUnavailable: the sink is down or closed; it says nothing about the mark.
            SinkTimeout: the same, after a while.
        """

    async def write_mark(self, tube: str, mark: str) -> None:
        """Make what `open` would make, and leave `mark`, unless the place has one already.

        Called when `read_mark` gave None, for a tube that is new, or is about to be filled again. A sink
        whose server names the place has nothing to leave. Raises as `open`.
        """


@runtime_checkable
class Noting(Protocol):
    """What a sink offers in addition to `Marked` if it keeps short texts beside the documents.

    Workers note there how far the source was when they last read something, and an id of a commit just
    before. A source that is behind that, or without it, has lost commits, which it can't know if it was put
    back while no worker ran. There is a text for each source, since several may deliver into one place: `key`
    names it, in at most 200 printable characters of ASCII, without spaces.

    It may have `cannot_note()`: why it keeps none as it is configured; None when it does.
    """

    async def read_note(self, key: str) -> str | None:
        """The text that was left last under that key; None: there is none. Raises as `read_mark`."""

    async def write_note(self, key: str, text: str) -> None:
        """Replace the text of that key, and no other; asked for once a minute at most.

        Raises as `read_mark`, `SinkUnavailable` if it can't be left now, and `ConfigError` without
        the right.
        """


def refuse_lapsed(who: str, batch: Batch) -> None:
    """Raise `SinkUnavailable` if the right to send `batch` has lapsed; `who` names the sink or its server."""
    if batch.has_lapsed():
        raise SinkUnavailable(f"{who}: nothing was written, the right to send had lapsed")


def in_groups(items: Iterable[T], size_of: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """The items in groups of at most `limit`, one for each request; a larger item stands alone."""
    group: list[T] = []
    size = 0
    for item in items:
        added = size_of(item)
        if group and size + added > limit:
            yield group
            group, size = [], 0
        group.append(item)
        size += added
    if group:
        yield group


async def held_forms(sink: Reading, bodies: Sequence[bytes]) -> Sequence[bytes | None]:
    """The result of `read` for each of these documents once it was written: `sink.as_held(bodies)`.

    Most sinks have no such method, and give the same document; a sink that keeps some fields only, or other
    types, gives another. None: it would reject it. `HOLDS_NOTHING`: writing it deletes the document.
    """
    as_held: Callable[[Sequence[bytes]], Awaitable[Sequence[bytes | None]]] | None
    as_held = getattr(sink, "as_held", None)
    return bodies if as_held is None else await as_held(bodies)


def why_no_mark(sink: Sink) -> str | None:
    """Why `sink` has no mark; None when it has one."""
    return _why_not(sink, Marked, "cannot_mark", "the sink has no mark")


def why_no_note(sink: Sink) -> str | None:
    """Why `sink` keeps no note; None when it does."""
    return _why_not(sink, Noting, "cannot_note", "the sink keeps no note")


def why_no_scan(sink: object) -> str | None:
    """Why `sink` can't be scanned; None when it can."""
    return _why_not(sink, Scanning, "cannot_scan", "the sink can't be scanned")


def why_no_read(sink: Sink) -> str | None:
    """Why documents of `sink` can't be read back; None when they can."""
    return _why_not(sink, Reading, "cannot_read", "the sink's documents can't be read back")


def _why_not(sink: object, offer: type, method: str, lacking: str) -> str | None:
    if not isinstance(sink, offer):
        return lacking
    cannot: Callable[[], str | None] | None = getattr(sink, method, None)
    return None if cannot is None else cannot()


# --- writes that continue although their `send` was cancelled, and calls of functions that block ----------
# Each call has a daemon thread, because a hanging call must not keep the process from exiting, as the threads
# of an executor do.


class ThreadCall(Generic[T]):
    """One call of a function in a daemon thread, which can be called off until it begins.

    The function is given `begin`, asks it right before it has an effect, and leaves when it says False.
    """

    def __init__(self, function: Callable[[Callable[[], bool]], T], name: str) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._begun = self._called_off = False
        self._outcome = Handed[T]()
        self.over = self._outcome.future
        """The function's result or error; or why it was called off."""
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:
            raise SinkUnavailable(f"no thread could be started for the sink: {error}") from error

    def call_off(self, error: SinkError) -> bool:
        """End the call with `error` unless it has begun; whether that was still possible."""
        with self._lock:
            if self._begun or self.over.done():
                return False
            self._called_off = True
        self.over.set_exception(error)
        self.over.exception()  # retrieved: it may have no reader
        return True

    def _begin(self) -> bool:
        with self._lock:
            self._begun = not self._called_off
            return self._begun

    def _run(self) -> None:
        try:
            self._outcome.end(self._function(self._begin))
        except BaseException as raised:  # noqa: BLE001  # carried to who waits
            # SystemExit and the like would stop the event loop, and with it the worker.
            can_pass = isinstance(raised, Exception) and not isinstance(raised, StopIteration)
            error = raised if can_pass else SinkError(f"the sink's thread raised {raised!r}")
            self._outcome.end(error=error)


class Abandoned:
    """What still runs for batches whose `send` was cancelled."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Future[Any], Batch] = {}

    def __len__(self) -> int:
        return len(self._running)

    def add(self, batch: Batch, running: asyncio.Future[Any]) -> None:
        """Remember that a write of a batch can have an effect until it has ended."""
        self._running[running] = batch
        running.add_done_callback(self._forget)

    async def over(self, batch: Batch) -> None:
        """Wait until everything that was begun for this very batch is over."""
        running = [one for one, known in self._running.items() if known is batch]
        if running:
            await asyncio.wait(running)

    def _forget(self, ended: asyncio.Future[Any]) -> None:
        del self._running[ended]
        if not ended.cancelled():
            ended.exception()  # retrieved, or asyncio would log it


# --- sinks that the conformance suite may judge ---------------------------------------------------


Erase = Callable[[str, Collection[Key]], Awaitable[None]]
"""Deletes all that the sink of a trial has written: the documents of these keys of a tube, and everything
else that it stored."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A separate place at the store of a sink, for documents that no application reads."""

    make_sink: Callable[[], Sink]
    """Makes a sink, not open, that writes there; else it is as configured. Called several times."""
    where: str
    """The name of the place, e.g. of an index."""
    erase: Erase | None
    """None: the written documents can't be removed."""
    notes: tuple[str, ...] = ()
    """What of the configuration is not used, and so not judged."""
    tube: str = "conformance"
    """Of the documents that are sent."""


@runtime_checkable
class Trying(Protocol):
    """A sink that `pytube sink check` can judge."""

    def trial(self, name: str, keys: KeyType) -> Trial:
        """A separate place, for ids of that type; nothing is created yet.

        Args:
            name: of the trial: lower-case letters, digits and hyphens; new each time.
            keys: `BIGINT` or `TEXT`.

        Raises:
            ConfigError: the sink's configuration allows none.
        """


def notes_of_the_suite(tube: str) -> tuple[str, str]:
    """The keys under which the conformance suite leaves notes; a trial erases them where they outlive it."""
    return f"{tube}:7511:1:16384", f"{tube}:7511:1:16999"


def of_the_suite(what: str) -> str:
    """The note about an object that belongs to the suite."""
    return f"{what} is the suite's own, and that of the configuration is not judged"
