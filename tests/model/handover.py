"""A model of one key, its tube, and workers that lead its partition one after the other.

What each step stands for in the code:

| step | code |
|---|---|
| change | a transaction of the application: the row's next version, and a pod (`sql/capture`) |
| acquire, acquired | `tube_leader_acquire`, and its answer; the question is as old as its trust |
| ask, waited | `tube_leader_wait`, and the end of that time (`pytube/worker/leadership.py`) |
| renew, renewed | `tube_leaders_renew`, and its answer (`ActiveTerm`: trust counts from the question) |
| mark | `tube_pods_mark`; without an answer the term ends |
| take | a delivery begins and draws its token: it covers what is marked so far |
| read | the enricher's query |
| gives up | a delivery that sends nothing: its rows can't be read, or trust has lapsed |
| send | a sink's `send`, only while the term is trusted |
| write, answer, late | the sink takes a write; the worker learns of it; `request_timeout` is over |
| purge | `tube_pods_purge`, after the answer |
| release | `tube_leader_release`, when no write is unanswered |
| ends | the worker learns that its term is over |
| kill | the process ends, and another one takes its place; what it has sent is still on its way |
| repartition | `tube_create` with another number of partitions: all terms end |
| tick | time passes, for all alike. A worker that stands still is one that takes no step meanwhile |

Times are whole ticks. A worker that stands still between its look whether it is trusted and the first byte of
its write is outside the model: docs/sinks.md says what such a write can do at a sink that does not compare
tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.explorer import Step

DEADLINE = 1
"""Ticks after the question of the last answered renewal in which sends may begin: `receive_deadline`."""
TIMEOUT = 1
"""Ticks after its beginning in which a write may still reach the sink: `request_timeout`."""
HOLD = DEADLINE + TIMEOUT

KEY = 1
"""The shard; its partition is this modulo the number of partitions."""


class Worker(NamedTuple):
    """A process, as it knows itself."""

    epoch: int = 0
    """Of its term; 0: it has none."""
    partitions: int = 1
    """With which the term began."""
    waits: int | None = None
    """Ticks until no earlier term can be writing; None: not asked yet; -1: it has waited."""
    trust: int = 0
    """Ticks in which sends may begin."""
    age: int | None = None
    """Ticks since the acquire or the renewal that is on its way was sent; None: none is."""
    answer: int = 0
    """The epoch in the answer that is on its way; 0: none is."""
    held: int = 0
    """The newest pod that is marked and not purged; 0: none. Older ones go with it."""
    taken: int = 0
    """The newest pod that the delivery under way covers; 0: none is."""
    version: int | None = None
    """Of the row, as it was read; None: it is to be read."""
    reads: int = 0
    """Deliveries of the term: the second half of the token."""
    flies: bool = False
    """Whether a write of it is unanswered."""
    done: int = 0
    """The newest pod that is written and not purged; 0: none."""


class Write(NamedTuple):
    """A write on its way to the sinks."""

    worker: int
    """Who sent it; -1: a process that is no more."""
    epoch: int
    read: int
    version: int
    left: int
    """Ticks in which it may still take effect; below 0 it can't."""
    applied: bool


class Term(NamedTuple):
    """A term that ended without a release."""

    partitions: int
    partition: int
    left: int
    """Ticks in which a write of it may still take effect."""


class State(NamedTuple):
    """Postgres, the sinks, what is on its way between them, and the workers."""

    workers: tuple[Worker, ...]
    partitions: int = 1
    issued: int = 0
    """The last epoch."""
    leader: int = 0
    """The epoch of the present term; 0: none."""
    left: int = 0
    """Of the present term, as `Term.left`."""
    ended: frozenset[Term] = frozenset()
    version: int = 0
    """Of the row; each version has a pod."""
    pods: tuple[tuple[int, int], ...] = ()
    """The pods that are not purged: version, and the epoch that has marked it."""
    writes: tuple[Write, ...] = ()
    token: tuple[int, int] = (0, 0)
    """At the sink that compares tokens."""
    compared: int = 0
    """The version there."""
    plain: int = 0
    """The version at a sink that takes what comes."""


@dataclass(frozen=True, slots=True)
class Model:
    """How far it goes, and by which bug; without one, the promises hold."""

    workers: int = 2
    versions: int = 2
    epochs: int = 2
    reads: int = 2
    """Of each term."""
    kills: bool = False
    losses: bool = False
    """Of answers to acquires, renewals and marks."""
    renewals: bool = False
    repartitions: bool = False
    bug: str = ""

    def first(self) -> State:
        """Nobody leads, and nothing has happened."""
        return State(tuple(Worker() for _ in range(self.workers)))

    def broken(self, state: State) -> str | None:
        """The promise that a state breaks."""
        left = {version for version, _ in state.pods}
        purged = max((version for version in range(1, state.version + 1) if version not in left), default=0)
        if purged > min(state.compared, state.plain):
            return "a pod is purged, and its change is not at the sink"
        for worker in state.workers:
            if worker.epoch == state.leader != 0 and any(
                by == worker.epoch and version > worker.held for version, by in state.pods
            ):
                return "a pod is marked, and the leader does not know of it"
        return None

    def successors(self, state: State) -> Iterator[Step[State]]:
        """All that may happen next."""
        if state.version < self.versions:
            version = state.version + 1
            yield Step("change", state._replace(version=version, pods=(*state.pods, (version, 0))))
        yield Step("tick", _tick(state))
        if self.repartitions and state.partitions == 1:
            yield Step("repartition", _end_term(state, released=False)._replace(partitions=2))
        for number in range(self.workers):
            for step in self._of_worker(state, number):
                yield Step(f"w{number} {step.name}", step.state, step.wrong)
        for index in range(len(state.writes)):
            yield from self._of_write(state, index)

    # --- a worker ---------------------------------------------------------------------------

    def _of_worker(self, state: State, number: int) -> Iterator[Step[State]]:
        worker = state.workers[number]
        if worker != Worker() and self.kills:
            yield Step("kill", _ended(state, number))
        if worker.epoch and not self.is_current(state, worker):
            yield Step("ends", _ended(state, number))
        yield from self._terms(state, number, worker)
        if worker.epoch and worker.waits is not None and (worker.waits < 0 or self.bug == "no wait"):
            yield from self._delivery(state, number, worker)

    def _terms(self, state: State, number: int, worker: Worker) -> Iterator[Step[State]]:
        if not worker.epoch and worker.age is None and state.issued < self.epochs:
            epoch = state.issued + (
                self.bug != "an epoch comes again" or state.leader != 0 or not state.issued
            )
            ended = _end_term(state, released=False)
            yield Step(
                "acquire",
                _with(
                    ended._replace(issued=epoch, leader=epoch, left=HOLD),
                    number,
                    worker._replace(age=0, answer=epoch, partitions=state.partitions),
                ),
            )
        if worker.age is not None:
            if worker.answer:
                since = 0 if self.bug == "trust counts from the answer" else worker.age
                name = "renewed" if worker.epoch else "acquired"
                trust = max(worker.trust, DEADLINE - since)
                yield Step(
                    name,
                    _with(
                        state, number, worker._replace(epoch=worker.answer, trust=trust, age=None, answer=0)
                    ),
                )
            elif state.leader == worker.epoch and state.partitions == worker.partitions:
                yield Step(
                    "is renewed",
                    _with(state._replace(left=HOLD), number, worker._replace(answer=worker.epoch)),
                )
            if self.losses:
                yield Step("loses the answer", _with(state, number, worker._replace(age=None, answer=0)))
        elif worker.epoch and self.renewals:
            yield Step("renew", _with(state, number, worker._replace(age=0)))
        if worker.epoch and worker.waits is None and self.is_current(state, worker):
            yield Step("ask", _with(state, number, worker._replace(waits=self._wait(state, worker))))
        if worker.waits == 0:
            yield Step("waited", _with(state, number, worker._replace(waits=-1)))
        if (
            worker.epoch
            and self.is_current(state, worker)
            and (not worker.flies or self.bug == "releases with unanswered writes")
        ):
            pods = tuple((version, 0 if by == worker.epoch else by) for version, by in state.pods)
            released = _end_term(state, released=True)._replace(pods=pods)
            yield Step("release", _ended(released, number))

    def is_current(self, state: State, worker: Worker) -> bool:
        """The fence: `tube_private_hold_term`."""
        return state.leader == worker.epoch and state.partitions == worker.partitions

    def _wait(self, state: State, worker: Worker) -> int:
        """As `tube_leader_wait`: terms that shared a shard with this one."""
        partition = KEY % worker.partitions
        return max(
            (
                term.left
                for term in state.ended
                if (
                    (term.partitions, term.partition) == (worker.partitions, partition)
                    if self.bug == "waits for its own partition alone"
                    else (term.partition - partition) % min(term.partitions, worker.partitions) == 0
                )
            ),
            default=0,
        )

    def _delivery(self, state: State, number: int, worker: Worker) -> Iterator[Step[State]]:
        reads_early = self.bug == "reads before it marks"
        is_current = self.is_current(state, worker)
        if is_current and any(by != worker.epoch for _, by in state.pods):
            marked = state._replace(pods=tuple((version, worker.epoch) for version, _ in state.pods))
            yield Step("mark", _with(marked, number, worker._replace(held=state.pods[-1][0])))
            if self.losses:
                goes_on = self.bug == "goes on after a lost mark"
                yield Step("mark, and the answer is lost", marked if goes_on else _ended(marked, number))
        if not worker.taken:
            if (worker.held > worker.done or reads_early) and worker.reads < self.reads:
                taken = state.version if reads_early else worker.held
                yield Step("take", _with(state, number, worker._replace(taken=taken, reads=worker.reads + 1)))
        elif worker.version is None and not worker.flies:
            yield Step("read", _with(state, number, worker._replace(version=state.version)))
        elif worker.version is not None:
            yield from self._send(state, number, worker)
        if is_current and (worker.done or (worker.flies and self.bug == "purges before the answer")):
            done = worker.done or worker.taken
            left = tuple(pod for pod in state.pods if pod[0] > done)
            held = worker.held if worker.held > done else 0
            yield Step("purge", _with(state._replace(pods=left), number, worker._replace(held=held, done=0)))

    def _send(self, state: State, number: int, worker: Worker) -> Iterator[Step[State]]:
        assert worker.version is not None
        yield Step("gives up", _with(state, number, worker._replace(taken=0, version=None)))
        if worker.held and (worker.trust > 0 or self.bug == "no trust"):
            write = Write(number, worker.epoch, worker.reads, worker.version, TIMEOUT, applied=False)
            sent = state._replace(writes=tuple(sorted((*state.writes, write))))
            taken = worker.held if self.bug == "reads before it marks" else worker.taken
            yield Step("send", _with(sent, number, worker._replace(taken=taken, version=None, flies=True)))

    # --- a write ----------------------------------------------------------------------------

    def _of_write(self, state: State, index: int) -> Iterator[Step[State]]:
        write = state.writes[index]
        others = (*state.writes[:index], *state.writes[index + 1 :])
        if not write.applied and write.left >= 0:
            name = f"write of w{write.worker}, version {write.version}"
            kept = tuple(sorted((*others, write._replace(applied=True))))
            applied = state._replace(writes=kept, plain=write.version)
            wrong = "the plain sink goes back" if write.version < state.plain else None
            if (write.epoch, write.read) > state.token:
                if write.version < state.compared:
                    wrong = "the sink that compares tokens goes back"
                applied = applied._replace(token=(write.epoch, write.read), compared=write.version)
            yield Step(name, applied, wrong)
        if write.worker < 0:
            return
        worker = state.workers[write.worker]
        if write.applied:
            answered = worker._replace(flies=False, taken=0, done=worker.taken)
            yield Step(
                f"w{write.worker} answer", _with(state, write.worker, answered)._replace(writes=others)
            )
        if write.left < 0 or self.bug == "sends again before the answer":
            kept = others if write.left < 0 else tuple(sorted((*others, write._replace(worker=-1))))
            late = _with(state, write.worker, worker._replace(flies=False, taken=0))
            yield Step(f"w{write.worker} late", late._replace(writes=kept))


def _ended(state: State, number: int) -> State:
    """The worker is another process now, or knows nothing of its term any more."""
    return _with(state, number, Worker())._replace(writes=_orphaned(state, number))


def _orphaned(state: State, number: int) -> tuple[Write, ...]:
    """The writes, of which those of a worker are nobody's: no answer is waited for."""
    return tuple(one._replace(worker=-1) if one.worker == number else one for one in state.writes)


def _with(state: State, number: int, worker: Worker) -> State:
    return state._replace(workers=(*state.workers[:number], worker, *state.workers[number + 1 :]))


def _end_term(state: State, *, released: bool) -> State:
    """The present term ends; `tube_private_end_terms`."""
    if not state.leader:
        return state
    ended = state.ended
    if not released and state.left > 0:
        ended |= {Term(state.partitions, KEY % state.partitions, state.left)}
    return state._replace(leader=0, left=0, ended=ended)


def _tick(state: State) -> State:
    workers = tuple(
        worker._replace(
            trust=max(0, worker.trust - 1),
            waits=worker.waits - 1 if worker.waits is not None and worker.waits > 0 else worker.waits,
            age=min(DEADLINE, worker.age + 1) if worker.age is not None else None,
        )
        for worker in state.workers
    )
    writes = tuple(one._replace(left=max(-1, one.left - 1)) for one in state.writes)
    return state._replace(
        workers=workers,
        left=max(0, state.left - 1),
        ended=frozenset(term._replace(left=term.left - 1) for term in state.ended if term.left > 1),
        writes=tuple(one for one in writes if one.worker >= 0 or (one.left >= 0 and not one.applied)),
    )
