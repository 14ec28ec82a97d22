"""Terms: leadership over a partition as the database sees it. The fence of everything else.

It also reports shards that two hosts have: rows would overwrite each other at the sink.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import combinations
from typing import Any, Final, Literal
from uuid import UUID, uuid4

from pytube.db.session import Queries
from pytube.errors import Fenced, NotLeader, UsageError
from pytube.model import KeyType
from pytube.sources import queries

_LONGEST_REASON = 500
"""Characters of an error that are reported."""
_USER_INFO = re.compile(r"(?<=://)[^/\s]*@")
_PASSWORD = re.compile(r"(?i)((?:password|passwd|secret|token|api[_-]?key)[\"']?\s*[=:]\s*)[^\s,;&]+")


@dataclass(frozen=True, slots=True)
class Term:
    """One span of leadership over one partition."""

    tube: str
    partitions: int
    partition: int
    epoch: int
    leader_id: UUID = field(default_factory=uuid4)
    keys: KeyType = KeyType.BIGINT
    paused: str | None = None
    """Why the partition was paused when the term began; None when it was not."""
    host: str | None = None
    """The Postgres host, where there are several."""

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "tube": self.tube,
            "partitions": self.partitions,
            "partition": self.partition,
            "leader_id": self.leader_id,
        }


@dataclass(frozen=True, slots=True)
class Candidate:
    """Who wants to lead, and for how long its writes can outlive its last renewal."""

    instance_id: UUID
    client_id: str
    election: str
    hold: float
    """Seconds: receive deadline + sink request timeout."""
    lease: float | None
    """Seconds for which a renewal keeps others out; None under neli."""
    host: str | None = None
    """The Postgres host, where there are several."""


async def read_partitions(session: Queries, tubes: Sequence[str]) -> dict[str, int]:
    return dict(await session.rows(queries.PARTITIONS, {"tubes": list(tubes)}))


async def read_shards(session: Queries, tubes: Sequence[str]) -> Shards:
    return shards_of(await session.rows(queries.SHARDS, {"tubes": list(tubes)}))


async def read_epoch(session: Queries, tube: str, partitions: int, partition: int) -> int:
    """The epoch to acquire against; to be read *before* the right to lead is proved."""
    arguments = {"tube": tube, "partitions": partitions, "partition": partition}
    return int(await session.value(queries.LEADER_EPOCH, arguments))


async def last_epoch(session: Queries, tube: str) -> int:
    """The greatest epoch ever issued for the tube; 0 when it is gone."""
    return int(await session.value(queries.LAST_EPOCH, {"tube": tube}) or 0)


async def acquire(
    session: Queries, tube: str, partitions: int, partition: int, expected_epoch: int, candidate: Candidate
) -> Term:
    """Begin a term, if the epoch is still `expected_epoch`.

    Raises:
        EpochMoved: another process began one meanwhile.
        LeaseHeld: under the lease election, the lease has not run out.
        WrongPartitions: the tube was repartitioned.
        UsageError: the tube has keys of a type that this version does not know.
    """
    term = Term(tube, partitions, partition, epoch=0, host=candidate.host)
    lease = None if candidate.lease is None else timedelta(seconds=candidate.lease)
    row = await session.row(
        queries.LEADER_ACQUIRE,
        term.arguments
        | {
            "instance_id": candidate.instance_id,
            "client_id": candidate.client_id,
            "expected_epoch": expected_epoch,
            "election": candidate.election,
            "hold": timedelta(seconds=candidate.hold),
            "lease": lease,
        },
    )
    assert row is not None
    epoch, keys, paused = row
    return replace(term, epoch=int(epoch), keys=_key_type(tube, keys), paused=paused)


def _key_type(tube: str, name: str) -> KeyType:
    try:
        return KeyType(name)
    except ValueError:
        known = ", ".join(KeyType)
        raise UsageError(
            f"the keys of tube {tube!r} have the type {name}, and this version of the worker serves "
            f"{known} only; upgrade it"
        ) from None


Trouble = Literal["sink", "source", "paused"]
Hindrance = Literal["slow", "locked", "late"]
"""What slows a term down: its sink, another session's lock, the worker. It still delivers, or will."""


class Troubles:
    """Why a term does not deliver: its sink or source is down, or a pause; and what slows it down.

    Renewals report it.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, float]] = {}
        self._next_at: dict[str, float] = {}
        """When it is tried again, where that is known: moments of `time.monotonic`."""
        self._watched: dict[str, Callable[[], tuple[str, float] | None]] = {}

    def reason(self, what: Trouble) -> str | None:
        """Why it is down, as reported; None when it is not."""
        return self._since[what][0] if what in self._since else None

    def note(
        self, what: Trouble, reason: str, since: float | None = None, next_at: float | None = None
    ) -> None:
        """It is down, or at rest, for this reason, and tried again at `next_at`.

        The latest reason counts: the first one is often gone when an operator looks. When it began
        stays: now, or `since`. These are moments of `time.monotonic`.
        """
        self._next_at.pop(what, None)
        if next_at is not None:
            self._next_at[what] = next_at
        if what in self._since:
            _, since = self._since[what]
        self._since[what] = reason_for_people(reason), time.monotonic() if since is None else since

    def end(self, what: Trouble) -> None:
        self._since.pop(what, None)
        self._next_at.pop(what, None)

    def watch(self, what: Hindrance, ask: Callable[[], tuple[str, float] | None]) -> None:
        """Ask with each renewal whether it is so: why, and since which moment of `time.monotonic`."""
        self._watched[what] = ask

    def as_json(self) -> dict[str, dict[str, Any]]:
        now = time.monotonic()
        seen = {
            what: (reason_for_people(told[0]), told[1])
            for what, ask in self._watched.items()
            if (told := ask()) is not None
        }
        return {
            what: {"reason": reason, "seconds": now - since}
            | ({"left": self._next_at[what] - now} if what in self._next_at else {})
            for what, (reason, since) in (self._since | seen).items()
        }


def reason_for_people(reason: str) -> str:
    """The text of an error: short, without passwords, and of characters that `jsonb` takes."""
    text = "".join(c if c.isprintable() else " " for c in reason)
    text = _PASSWORD.sub(r"\1********", _USER_INFO.sub("********@", text))
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…"


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a renewal answers of a term."""

    renewed: bool | None
    """False: it could not be renewed now. None: there is no such term any more."""
    paused: str | None
    """Why the partition is to pause; None when it is not."""
    step: int | None
    """A step that an operator asks for."""


RENEWED: Final = Renewal(True, None, None)


async def renew(session: Queries, terms: Mapping[UUID, Troubles]) -> Mapping[UUID, Renewal]:
    """Renew terms, of whatever tubes; returns the answers other than `RENEWED`.

    Their troubles, and the ends of troubles, go with the renewal, so that they cost no extra statement
    and end with the term.
    """
    troubles = {str(leader_id): told for leader_id, one in terms.items() if (told := one.as_json())}
    arguments = {
        "leader_ids": f"{{{','.join([one.hex for one in terms])}}}",  # as text: a list of UUIDs is slow
        "troubles": json.dumps(troubles) if troubles else None,
    }
    rows = await session.rows(queries.LEADERS_RENEW, arguments)
    return {leader_id: Renewal(*answer) for leader_id, *answer in rows}


async def why_over(session: Queries, term: Term) -> NotLeader | None:
    try:
        await session.value(queries.LEADER_RENEW, term.arguments)
    except NotLeader as error:
        return error
    except UsageError as error:  # the tube was dropped
        return Fenced(str(error))
    return None


async def release(session: Queries, term: Term) -> bool:
    """End the term in order; False when it was over already."""
    return bool(await session.value(queries.LEADER_RELEASE, term.arguments))


async def note_failing(
    session: Queries, tube: str, partition: int, reason: str = "", terms: int = 0, seconds: float = 0.0
) -> None:
    """Write down that so many terms failed one after the other, the first so long ago; 0: no more do."""
    arguments = {"tube": tube, "partition": partition, "terms": terms, "seconds": seconds}
    await session.value(queries.FAILING_NOTE, arguments | {"reason": reason_for_people(reason)})


async def wait_left(session: Queries, term: Term) -> float:
    """Seconds until no earlier term can write any more; 0 when none can."""
    return float(await session.value(queries.LEADER_WAIT, term.arguments))


# --- shards of hosts -----------------------------------------------------------------------------


Shards = Mapping[str, Sequence[range]]
"""The shards of each tube, as far as tables are attached to it."""


@dataclass(frozen=True, slots=True)
class SharedShard:
    """One shard of a tube that two hosts have."""

    tube: str
    shard: int
    hosts: tuple[str, str]

    @property
    def finding(self) -> str:
        """The finding and its remedy."""
        one, other = self.hosts
        return (
            f"tube {self.tube!r} has shard {self.shard} on host {one} and on host {other}, so rows with the "
            "same id would overwrite each other at the sink; attach the tables of each host to separate "
            "shards (pytube tube attach --shard)"
        )


def shards_of(attached: Iterable[tuple[str, int, int]]) -> Shards:
    """The shards of attached tables, each given as its tube, the first shard, and their number."""
    shards: dict[str, list[range]] = {}
    for tube, first, count in attached:
        shards.setdefault(tube, []).append(range(first, first + count))
    return shards


def shared_shards(hosts: Mapping[str | None, Shards]) -> Iterator[SharedShard]:
    """The first shard that each two hosts have in common, for each tube; the only host has no name."""
    named = [(name, shards) for name, shards in hosts.items() if name is not None]
    for (one, mine), (other, theirs) in combinations(named, 2):
        for tube in sorted(mine.keys() & theirs.keys()):
            starts = (
                max(some.start, others.start)
                for some in mine[tube]
                for others in theirs[tube]
                if some.start < others.stop and others.start < some.stop
            )
            first = min(starts, default=None)
            if first is not None:
                yield SharedShard(tube, first, (one, other))
