"""Compares the documents a worker would send now with the sink's, twice where they seem to differ.

A key may differ only because its change is on the way. So a key that differs is looked at again:

1. wait until no pod committed so far holds it, nor may lead to it; read the sink (S1), then the source (D1);
2. wait again, which covers whatever D1 shows; read the sink (S2), and the source (D2).

If S2 equals D1, the key was on the way. If S1 and S2 are the same write and D1 and D2 the same document, the
key differs: the last change up to D1 was delivered by S2, and not after S1, so before; and the document
delivered then is not the source's. Otherwise the key is changing, and is looked at again, a few times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pytube.comparison import Difference, decode, equal
from pytube.delivered import DRAWN
from pytube.errors import SinkTimeout, SinkUnavailable
from pytube.model import Key
from pytube.sinks.base import HOLDS_NOTHING, READ_MOST, Reading, Stored, held_forms
from pytube.verify.sides import Now, Source

_ROUNDS = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two looks at waiting keys."""
_UNRESOLVED = """
    SELECT EXISTS (SELECT FROM tube_companions(%(tube)s) AS c, tube_undelivered(c, %(seq)s))
"""
_WAITING = "SELECT shard, id FROM tube_keys_waiting(%(tube)s, %(seq)s, %(shards)s, %(ids)s)"
_SINK_TRIES = 4
_SINK_PAUSE = 0.5
"""Seconds before the sink is read again that did not answer, doubled each time."""

_Answers = Mapping[Key, Stored]
_Told = tuple[int, str]
"""A key as the database returns it."""


@dataclass(slots=True)
class Compared:
    """The result for keys that were compared once."""

    suspects: list[Key] = field(default_factory=list)
    """The keys that seem to differ."""
    skipped: list[Key] = field(default_factory=list)
    unsendable: dict[Key, str] = field(default_factory=dict)
    bytes: int = 0
    """Of the documents of the source."""


@dataclass(slots=True)
class Judged:
    """The result for keys that were looked at again; equal keys are nowhere."""

    differing: dict[Key, Difference] = field(default_factory=dict)
    waiting: list[Key] = field(default_factory=list)
    """The keys that wait in the tube, or may do so in a companion of it, and were not delivered in time."""
    changing: list[Key] = field(default_factory=list)
    """The keys whose documents changed each time."""
    skipped: list[Key] = field(default_factory=list)
    unsendable: dict[Key, str] = field(default_factory=dict)


class Comparer:
    """Compares keys of one tube."""

    def __init__(self, source: Source, sink: Reading, *, patience: float) -> None:
        """Args:
        source: open.
        sink: open.
        patience: seconds to wait for the delivery of waiting keys; once that was exceeded, there are no
            more waits.
        """
        self._source = source
        self._sink = sink
        self._patience = patience

    async def compare(self, keys: Sequence[Key]) -> Compared:
        """Compare each key once."""
        now, held = await asyncio.gather(self._now(keys), self.held(keys))
        came = Compared(skipped=now.skipped, unsendable=now.unsendable)
        for key, body in now.bodies.items():
            came.bytes += len(body or b"")
            if difference(body, held[key]) is not None:
                came.suspects.append(key)
        return came

    async def judge(self, keys: Sequence[Key]) -> Judged:
        """Look again at keys that seem to differ."""
        judged = Judged()
        left = list(keys)
        for _ in range(_ROUNDS):
            left = await self._delivered(left, judged)
            first = await self.held(left)
            before = await self._now(left)
            left = await self._delivered(left, judged)
            second = await self.held(left)
            after = await self._now(left)
            changing = []
            for key in left:
                if key in after.unsendable:
                    judged.unsendable[key] = after.unsendable[key]
                elif key in after.skipped:
                    judged.skipped.append(key)
                elif key not in after.bodies:
                    continue  # its table is no longer attached, which the run reports at its end
                elif key not in before.bodies:
                    changing.append(key)
                elif (found := difference(before.bodies[key], second[key])) is None:
                    continue
                elif is_same_write(first[key], second[key]) and before.bodies[key] == after.bodies[key]:
                    judged.differing[key] = found
                else:
                    changing.append(key)
            left = changing
            if not left:
                break
        judged.changing = left
        return judged

    async def held(self, keys: Sequence[Key]) -> _Answers:
        """What the sink holds; asked again a few times while it does not answer."""
        found: dict[Key, Stored] = {}
        for start in range(0, len(keys), READ_MOST):
            found |= await self._read(keys[start : start + READ_MOST])
        return found

    async def _read(self, keys: Sequence[Key]) -> _Answers:
        for attempt in range(_SINK_TRIES - 1):
            try:
                return await self._sink.read(self._source.tube, keys)
            except (SinkUnavailable, SinkTimeout):
                await asyncio.sleep(_SINK_PAUSE * 2**attempt)
        return await self._sink.read(self._source.tube, keys)

    async def _now(self, keys: Sequence[Key]) -> Now:
        """What a worker would send, as the sink would hold it."""
        now = await self._source.now(keys)
        there = [(key, body) for key, body in now.bodies.items() if body is not None]
        held = await held_forms(self._sink, [body for _, body in there])
        for (key, sent), body in zip(there, held, strict=True):
            if body is None:
                del now.bodies[key]
                now.unsendable[key] = "the sink would reject the document"
            elif body is not sent:
                now.bodies[key] = None if body == HOLDS_NOTHING else body
        return now

    async def _delivered(self, keys: Sequence[Key], judged: Judged) -> list[Key]:
        """Wait until no touch of these keys waits that was committed before; without keys that still do.

        Only for these: others may wait for hours in a long queue, and the touches of a repair are among them.
        But pods in a companion of the tube may lead to any key.
        """
        if not keys:
            return []
        ends = time.monotonic() + self._patience
        waiting = await self._waiting(keys, ends)
        if waiting:
            self._patience = 0.0
            judged.waiting += [key for key in keys if (key[0], str(key[1])) in waiting]
        return [key for key in keys if (key[0], str(key[1])) not in waiting]

    async def _waiting(self, keys: Sequence[Key], ends: float) -> set[_Told]:
        """The waiting keys; asked again until there are none, or until `ends`."""
        shards = [shard for shard, _ in keys]
        ids = [str(key) for _, key in keys]

        async def unresolved(drawn: int) -> set[_Told]:
            there = await self._source.pool.value(_UNRESOLVED, {"tube": self._source.tube, "seq": drawn})
            return set(zip(shards, ids, strict=True)) if there else set()

        async def undelivered(drawn: int) -> set[_Told]:
            arguments = {"tube": self._source.tube, "seq": drawn, "shards": shards, "ids": ids}
            return {(row[0], row[1]) for row in await self._source.pool.rows(_WAITING, arguments)}

        # Touches that the companions led to have later numbers than the pods there.
        return await self._ask(unresolved, ends) or await self._ask(undelivered, ends)

    async def _ask(self, look: Callable[[int], Awaitable[set[_Told]]], ends: float) -> set[_Told]:
        """The keys found up to the last number drawn now; again until there are none, or until `ends`."""
        pause = _FIRST_PAUSE
        drawn = int(await self._source.pool.value(DRAWN))
        while (found := await look(drawn)) and time.monotonic() < ends:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return found


def difference(body: bytes | None, stored: Stored) -> Difference | None:
    """How the sink differs from what would be sent; None when it does not."""
    if body is None:
        return Difference.EXTRA if stored.exists else None
    if not stored.exists:
        return Difference.MISSING
    try:
        return None if equal(stored.value, decode(body)) else Difference.DIFFERENT
    except ValueError:  # another writer has stored invalid JSON
        return Difference.DIFFERENT


def is_same_write(one: Stored, other: Stored) -> bool:
    """Whether nothing was written between two looks, as far as the sink shows."""
    if one.token is not None or other.token is not None:
        return one.token == other.token
    return one.exists == other.exists and one.body == other.body
