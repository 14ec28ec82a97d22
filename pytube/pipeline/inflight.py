"""The in-flight machine: which keys of one partition wait, fly, or are done. Pure; no I/O, no clock.

Each key `(shard, id)` that the machine holds is in exactly one place:

    waiting   not being sent; another touch of it is absorbed here
    flying    its enrich has begun; it is in one flight, and only there
    blocked   flying, and touched again since: it waits behind its own flight

and each pod is *held* until all its keys have landed. What must hold, whatever is called in
whatever order: no key is in two flights at once; a pod is never finished before the last of its
keys landed *after* the pod was added; nothing that was added is forgotten.

Speed: a pod whose keys are all new, by far the most frequent case, is handled by set operations
on whole pods. Only pods that overlap with held ones are looked at key by key.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeAlias

from pytube.model import Id, Pod, PodClass

Owners: TypeAlias = int | tuple[int, ...]
"""The seqs of the pods that wait for a key: nearly always one, so one is not wrapped."""


def _join(owners: Owners | None, more: Owners) -> Owners:
    if owners is None:
        return more
    return _seqs(owners) + _seqs(more)


def _seqs(owners: Owners) -> tuple[int, ...]:
    return owners if isinstance(owners, tuple) else (owners,)


class _Shard:
    """The held keys of one shard."""

    __slots__ = ("blocked", "flights", "number", "queued", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: tuple[dict[Id, Owners], dict[Id, Owners]] = ({}, {})
        self.flights: list[dict[Id, Owners]] = []
        self.blocked: dict[Id, Owners] = {}
        self.queued = [False, False]

    def overlaps(self, touched: list[Id]) -> set[Id]:
        """Those ids that are held already, or stand in `touched` more than once."""
        found: set[Id] = set()
        keys = set(touched)
        for known in (*self.waiting, *self.flights):
            found |= known.keys() & keys
        if len(keys) < len(touched):
            found.update([key for key, count in Counter(touched).items() if count > 1])
        return found

    def flying(self, keys: dict[Id, None]) -> set[Id]:
        return set().union(*(flight.keys() & keys.keys() for flight in self.flights))

    @property
    def is_empty(self) -> bool:
        return not (self.flights or self.waiting[0] or self.waiting[1])


class Flight:
    """Keys that are worked on together: `groups[shard]` maps ids to the pods that wait for them."""

    __slots__ = ("__weakref__", "groups", "is_retried", "leaves_some", "pod_class", "stamp", "ts")

    def __init__(self, pod_class: PodClass) -> None:
        self.pod_class = pod_class
        self.groups: dict[int, dict[Id, Owners]] = {}
        self.is_retried = False
        """Whether keys of it were sent again."""
        self.leaves_some = False
        """Whether keys of its class had to wait for the next one when it began."""
        self.stamp = 0
        """The highest seq added before the flight began, so at least the seqs of its touches."""
        self.ts = 0.0
        """When the pod of that seq was inserted."""

    def __len__(self) -> int:
        return sum(map(len, self.groups.values()))

    def by_shard(self) -> dict[int, list[Id]]:
        return {shard: list(group) for shard, group in self.groups.items()}

    def pods(self, keys: Mapping[int, Iterable[Id]]) -> set[int]:
        """The seqs of the pods that wait for these ids (by shard) of the flight; none if it flies apart."""
        if not self.groups:
            return set()
        owners = [self.groups[shard][key] for shard, ids in keys.items() for key in ids]
        return {seq for one in owners for seq in _seqs(one)}


class InFlight:
    """The keys and pods that one partition holds. See the module's text for what must hold."""

    def __init__(self) -> None:
        self._held: dict[int, float] = {}
        """The moments at which the pods held were inserted, by seq."""
        self._left: dict[int, int] = {}
        """How many keys each of them waits for."""
        self._backfill: set[int] = set()
        """Pods of op B."""
        self._shards: dict[int, _Shard] = {}
        self._queue: tuple[deque[_Shard], deque[_Shard]] = (deque(), deque())
        self._control: set[int] = set()
        """Those without ids."""
        self._finished: dict[int, float] = {}
        self._highest = 0
        self._highest_ts = 0.0
        self._waiting = [0, 0]
        self._flying = 0
        self._blocked = 0

    # --- the held pods ---------------------------------------------------------------------

    @property
    def keys(self) -> int:
        """Keys held, in whatever state: what bounds the memory of a partition."""
        return self._waiting[0] + self._waiting[1] + self._flying + self._blocked

    @property
    def flying(self) -> int:
        return self._flying

    @property
    def pods(self) -> int:
        """Pods held, without the ones that are finished but not yet collected."""
        return len(self._held)

    @property
    def control(self) -> int:
        """How many of them are control pods, which may wait long for events outside of the worker."""
        return len(self._control)

    def waiting(self, pod_class: PodClass) -> int:
        return self._waiting[pod_class]

    def held(self, pod_class: PodClass) -> int:
        """Pods of that class held; control pods are of neither."""
        backfill = len(self._backfill)
        return backfill if pod_class is PodClass.BACKFILL else self.pods - self.control - backfill

    @property
    def oldest(self) -> float | None:
        """As `oldest_of` incremental pods: backfill pods are not in a hurry."""
        return self.oldest_of(PodClass.INCREMENTAL)

    def oldest_of(self, pod_class: PodClass) -> float | None:
        """When the pod of that class that came first was inserted; None when none is held.

        Pods come in order of their seqs, so it is the oldest, except for pods of long transactions.
        """
        if not self.held(pod_class):
            return None
        wanted = pod_class is PodClass.BACKFILL
        return next(
            ts
            for seq, ts in self._held.items()
            if seq not in self._control and (seq in self._backfill) is wanted
        )

    def longest_waiting(self, pod_class: PodClass) -> float | None:
        """When the pod was inserted whose key has waited longest for a flight; None when no key waits.

        A key that is sent again and again does not count, as it is in its flight. A key that has waited
        behind its own flight stands at the end of the line, and counts when its turn comes.
        """
        firsts = (next(iter(one.waiting[pod_class].values()), None) for one in self._shards.values())
        return min((self._held[_seqs(owners)[0]] for owners in firsts if owners is not None), default=None)

    def holds(self, seq: int) -> bool:
        return seq in self._held

    def unfinished(self) -> list[int]:
        return sorted(self._held)

    # --- pods come in ---------------------------------------------------------------------

    def add(self, pods: Iterable[Pod]) -> list[Pod]:
        """Hold `pods`; those whose seq is held already are ignored.

        Returns:
            The control pods among them: held until `finish_control`.
        """
        control: list[Pod] = []
        groups: dict[tuple[int, bool], list[Pod]] = {}
        held = self._held
        for pod in pods:
            seq, op, number, ids, _, ts = pod
            if seq in held:
                continue
            held[seq] = ts
            if ids:
                groups.setdefault((number, op == "B"), []).append(pod)
            else:
                self._left[seq] = 1
                self._control.add(seq)
                control.append(pod)
            if seq > self._highest:
                self._highest, self._highest_ts = seq, ts
        for (number, backfill), group in groups.items():
            self._add_group(number, group, 1 if backfill else 0)
        return control

    def _add_group(self, number: int, pods: list[Pod], which: int) -> None:
        shard = self._shards.get(number)
        if shard is None:
            shard = self._shards[number] = _Shard(number)
        if which:
            self._backfill.update([pod.seq for pod in pods])
        overlapping = shard.overlaps([key for pod in pods for key in pod.ids])
        if overlapping:
            for pod in pods:
                if not overlapping.isdisjoint(pod.ids):
                    self._add_overlapping(shard, pod)
            pods = [pod for pod in pods if overlapping.isdisjoint(pod.ids)]
        self._left.update([(pod.seq, len(pod.ids)) for pod in pods])
        owners = {key: pod.seq for pod in pods for key in pod.ids}
        shard.waiting[which].update(owners)
        self._waiting[which] += len(owners)
        if owners:
            self._enqueue(shard, which)

    def _add_overlapping(self, shard: _Shard, pod: Pod) -> None:
        seq = pod.seq
        keys = dict.fromkeys(pod.ids)
        self._left[seq] = len(keys)
        flying = shard.flying(keys)
        for key in keys:
            if key in flying:
                if key not in shard.blocked:
                    self._blocked += 1
                shard.blocked[key] = _join(shard.blocked.get(key), seq)
            else:
                self._wait(shard, key, seq)

    def _wait(self, shard: _Shard, key: Id, owners: Owners) -> None:
        """Let `key` wait, joined with the pods that wait for it; incremental draws backfill with it."""
        backfilled = shard.waiting[1].pop(key, None)
        if backfilled is not None:
            self._waiting[1] -= 1
            owners = _join(backfilled, owners)
        which = 0 if key in shard.waiting[0] or not self._backfill.issuperset(_seqs(owners)) else 1
        known = shard.waiting[which].get(key)
        if known is None:
            self._waiting[which] += 1
        shard.waiting[which][key] = _join(known, owners)
        self._enqueue(shard, which)

    def _enqueue(self, shard: _Shard, which: int) -> None:
        if not shard.queued[which]:
            shard.queued[which] = True
            self._queue[which].append(shard)

    # --- keys fly -------------------------------------------------------------------------

    def take(self, pod_class: PodClass, limit: int) -> Flight | None:
        """Begin a flight of at most `limit` waiting keys of the class; None when none waits.

        From here until they land, further touches of these keys are blocked behind the flight.
        Shards take turns, so that a full one does not starve the rest.
        """
        queue = self._queue[pod_class]
        flight = self.begin(pod_class)
        room = limit
        while queue and room > 0:
            shard = queue.popleft()
            shard.queued[pod_class] = False
            group = self._take_group(shard, pod_class, room)
            if not group:
                continue
            room -= len(group)
            flight.groups[shard.number] = group
            shard.flights.append(group)
        taken = limit - room
        self._waiting[pod_class] -= taken
        self._flying += taken
        flight.leaves_some = self._waiting[pod_class] > 0
        return flight if taken else None

    def begin(self, pod_class: PodClass) -> Flight:
        """Begin a flight without keys: whatever is sent with it is read now, and no pod waits for that."""
        flight = Flight(pod_class)
        flight.stamp, flight.ts = self._highest, self._highest_ts
        return flight

    def _take_group(self, shard: _Shard, which: int, room: int) -> dict[Id, Owners]:
        waiting = shard.waiting[which]
        if len(waiting) <= room:
            group = dict(waiting)
            waiting.clear()
            return group
        group = dict(islice(waiting.items(), room))
        for key in group:
            del waiting[key]
        self._enqueue(shard, which)
        return group

    def land_keys(self, flight: Flight, keys: Mapping[int, Iterable[Id]]) -> None:
        """The ids of `keys` (by shard) are done; the rest of `flight` flies on."""
        for number, ids in keys.items():
            group = flight.groups[number]
            if group.keys() == set(ids):  # the whole of it, as nearly always
                landed = flight.groups.pop(number)
                self._end_group(number, landed)
            else:
                landed = {key: group.pop(key) for key in ids}
                if not group:
                    self._end_group(number, flight.groups.pop(number))
            self._settle(number, landed)

    def put_back(self, flight: Flight, keys: Mapping[int, Iterable[Id]]) -> None:
        """Of these ids (by shard) of the flight nothing was read or sent: they wait, and take up touches."""
        for number, ids in keys.items():
            shard, group = self._shards[number], flight.groups[number]
            for key in ids:
                owners = group.pop(key)
                self._flying -= 1
                if key in shard.blocked:
                    self._blocked -= 1
                    owners = _join(owners, shard.blocked.pop(key))
                self._wait(shard, key, owners)
            if not group:
                self._end_group(number, flight.groups.pop(number))

    def _end_group(self, number: int, group: dict[Id, Owners]) -> None:
        flights = self._shards[number].flights
        flights[:] = [other for other in flights if other is not group]

    def _settle(self, number: int, landed: dict[Id, Owners]) -> None:
        shard = self._shards[number]
        self._flying -= len(landed)
        left = self._left
        counts: Counter[Any] = Counter(landed.values())
        for owners in [owners for owners in counts if isinstance(owners, tuple)]:
            count = counts.pop(owners)
            for seq in owners:
                counts[seq] += count
        done = [seq for seq, count in counts.items() if left[seq] == count]
        if len(done) < len(counts):
            for seq in counts.keys() - set(done):
                left[seq] -= counts[seq]
        self._finish(done)
        if shard.blocked:
            for key in shard.blocked.keys() & landed.keys():
                self._blocked -= 1
                self._wait(shard, key, shard.blocked.pop(key))
        if shard.is_empty and not any(shard.queued):
            del self._shards[number]

    # --- pods are done --------------------------------------------------------------------

    def finish_control(self, pod: Pod) -> None:
        """The control pod was acted upon."""
        self._control.discard(pod.seq)
        self._finish([pod.seq])

    def drop_control(self, pod: Pod) -> None:
        """The control pod was acted upon, and is gone: not to be purged."""
        del self._left[pod.seq], self._held[pod.seq]
        self._backfill.discard(pod.seq)
        self._control.discard(pod.seq)

    def _finish(self, seqs: list[int]) -> None:
        self._finished.update([(seq, self._held.pop(seq)) for seq in seqs])
        for seq in seqs:
            del self._left[seq]
        if self._backfill:
            self._backfill.difference_update(seqs)

    @property
    def has_finished(self) -> bool:
        return bool(self._finished)

    def finished(self) -> dict[int, float]:
        """The pods that are done since the last call, to be purged: when each was inserted, by seq."""
        finished, self._finished = self._finished, {}
        return finished
