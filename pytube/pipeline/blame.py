"""Who is at fault when one document after the other fails: they, or the sink. Pure.

Poison is parked. But a sink that refuses everything must not have the whole table parked. So once 100
were parked in a row, no more are before the sink has taken a document. That may be long, if nothing healthy
is left to send. So each further failure calls a *witness*: a document that the sink took before is sent once
more. If it is taken, the failed documents are at fault.

A delete proves nothing: a sink that refuses all documents may take it.
"""

from __future__ import annotations

from pytube.model import Id, Key

_MOST_PARKED_IN_A_ROW = 100


class Witnesses:
    """Of each shard of a tube, the first and the last key whose document the sink took; a process has them.

    Of each shard, as each may have a separate index. Two, as one may be poison or deleted by now: the last
    together with the documents at fault, the first because it is old.
    """

    def __init__(self) -> None:
        self._keys: dict[int, tuple[Id, Id]] = {}

    def note(self, key: Key) -> None:
        shard, last = key
        first, _ = self._keys.setdefault(shard, (last, last))
        if last != first:  # which may have been called, and the other one is not to be forgotten for it
            self._keys[shard] = first, last

    def of(self, shard: int) -> tuple[Id, Id] | None:
        return self._keys.get(shard)


class Blame:
    """What follows for the sink from the failures of one partition's documents."""

    def __init__(self, witnesses: Witnesses) -> None:
        self._witnesses = witnesses
        self._called = 0
        """How often a witness was."""
        self._parked_in_a_row = 0
        self._suspect: tuple[int, str] | None = None
        """The shard of the document that failed last, and its error."""

    @property
    def is_on_sink(self) -> bool:
        """Whether nothing is parked before a document was taken."""
        return self._parked_in_a_row >= _MOST_PARKED_IN_A_ROW

    @property
    def is_open(self) -> bool:
        """Whether a document has failed that is not to be parked before a witness was heard."""
        return self._suspect is not None

    def note_failure(self, key: Key, reason: str, *, is_given_up: bool) -> bool:
        """A document failed alone; whether to park it, which may be if its attempts are used up."""
        if self.is_on_sink:
            self._suspect = key[0], reason
            return False
        self._parked_in_a_row += is_given_up
        return is_given_up

    def note_taken(self, key: Key) -> None:
        """The sink has taken the document of this key."""
        self._parked_in_a_row, self._suspect = 0, None
        self._witnesses.note(key)

    def call_witness(self) -> Key | None:
        """The key of a witness of that shard, by turns the last and the first; None: there is none."""
        assert self._suspect is not None
        shard, _ = self._suspect
        known = self._witnesses.of(shard)
        self._called += 1
        return None if known is None else (shard, known[self._called % 2])

    def adjourn(self) -> None:
        """The witness could not be asked."""
        self._suspect = None

    def charge_sink(self) -> str:
        """No witness has cleared the sink; the reason to hold it to be down."""
        assert self._suspect is not None
        (_, reason), self._suspect = self._suspect, None
        count = self._parked_in_a_row
        return f"{count} documents in a row failed, so it is not their fault; the last one: {reason}"
