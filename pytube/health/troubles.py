"""The troubles in a sample of the fleet, for `status`, `doctor`, `top` and the pages. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from itertools import groupby
from shlex import quote
from typing import Final, Literal, NamedTuple

from pytube.clock import for_people
from pytube.counts import name_partitions, printable, say_count
from pytube.errors import on_host
from pytube.health.findings import Kind, Level
from pytube.health.fleet import (
    Back,
    Complaint,
    Count,
    FleetSample,
    Hindrance,
    HostSample,
    Partition,
    Queue,
    digits,
    place,
)
from pytube.outbox.admin import COME_LATE, RestingTopic, say_failed
from pytube.outbox.records import NO_ANSWER

_PATIENCE: Final = 10.0
"""Seconds without a leader while something waits: a hand-over, or a worker's start, is over by then."""
_SINGLE: Final = 10.0
"""Below that, a number a second is printed with a digit behind the point."""
_MANY: Final = 1000
"""From so many pods on the number is an estimate."""
_UNKNOWN_TOPIC: Final = "Unknown topic"
"""In what librdkafka says of a topic that is missing, whether it or the broker has noticed."""
_REFILLED: Final = {
    "under way": "a backfill is under way that fills it again",
    "finished": "a backfill has filled it again, and a worker will notice within seconds",
}
_KILL: Final = "find out on its machine why it hangs, or kill it with SIGKILL: no change is lost"
_ADVICE: Final = ": restore it, or run `pytube backfill start "
"""Begins what workers advise where the sink has lost its documents."""
_LOOKS_AGAIN: Final = "do what the reason says; the worker looks again every half minute, and at SIGHUP"
_HINDRANCES: Final = {
    "slow": (Kind.SINK_SLOW, "sink slow for"),
    "locked": (Kind.TABLE_LOCKED, "waits for a lock for"),
    "late": (Kind.WORKER_LATE, "worker late for"),
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps documents or records from being delivered, or makes a copy doubtful."""

    kind: Kind
    level: Level
    subject: str
    """As the doctor names it."""
    finding: str
    remedy: str
    name: str | None = None
    """The tube or outbox; None: the finding names them."""
    partitions: tuple[int, ...] = ()
    """Which of them; none: it is of the whole tube or outbox."""
    in_line: bool = True
    """Whether a line for people says the remedy, too; not where the finding names it already."""
    host: str | None = None
    """The Postgres host, where there are several."""

    def __str__(self) -> str:
        """A line for people. It ends with the page that says more."""
        more = f"; more: {self.kind.page}"
        if self.name is None:
            return f"{place(self.host)}{self.finding}: {self.remedy}{more}"
        numbers = f" {name_partitions(self.partitions)}" if self.partitions else ""
        remedy = f": {self.remedy}" if self.in_line else ""
        return f"{place(self.host)}{self.name}{numbers}: {self.finding}{remedy}{more}"


def lines(sample: FleetSample) -> list[str]:
    """A line for each host that was not read, for each trouble, and for each queue that is behind."""
    hindered = [one for host in sample.hosts for one in host.hindered]
    paces = [f"{place(one.host)}{one.name}: {said}" for one in sample.queues if (said := pace(one, hindered))]
    return [*down_lines(sample), *(printable(str(one)) for one in [*troubles(sample.hosts), *paces])]


def pace(queue: Queue, hindered: Iterable[Hindrance] = ()) -> str | None:
    """Whether a queue that is behind catches up.

    Its lag does not show it: without writers, too, the oldest pod that waits gets older, for as long as it
    takes longer to deliver than it took to write.

    None: it is not behind, something else keeps it from delivering, or too little was seen.
    """
    is_hindered = any((one.host, one.tube) == (queue.host, queue.name) for one in hindered)
    if is_hindered or not queue.is_behind or queue.falls_by is None:
        return None
    nouns = "documents" if queue.kind == "tube" else "records"
    waiting = queue.documents if queue.kind == "tube" else queue.waiting
    speed = abs(queue.falls_by)
    number = f"{speed:.0f}" if speed >= _SINGLE else f"{speed:.1f}"
    if queue.falls_by > 0 and waiting is not None:
        least = "at least " if waiting.is_least else ""
        takes = for_people(waiting.number / speed)
        return (
            f"catching up: the backlog falls by about {number} {nouns} a second; at this pace all of it "
            f"({_amount(queue)}) is delivered in {least}about {takes}, though the lag may grow until then"
        )
    if queue.falls_by < 0:
        return f"falling behind: about {number} {nouns} a second more are written than delivered"
    return None


def _amount(queue: Queue) -> str:
    if queue.kind == "outbox":
        return f"{queue.waiting} records"
    return f"{queue.documents} documents, in {queue.waiting} pods"


def down_lines(sample: FleetSample) -> list[str]:
    """A line for each host that was not read."""
    down = sample.down.items()
    return [
        printable(f"{'The database' if host is None else f'host {host}'} was not read: {on_host(why, host)}")
        for host, why in down
    ]


def kafka_lines(sample: FleetSample) -> list[str]:
    """A line for each Kafka cluster that a worker can't reach, and the queues that wait for it."""
    return [printable(str(one)) for one in _of_kafka(sample.hosts)]


def troubles(
    hosts: Sequence[HostSample], waited: Mapping[tuple[str, int], float] | None = None
) -> list[Trouble]:
    """The troubles of some hosts.

    `waited`: for how many seconds something has waited in partitions without a leader, by name and number;
    None: for as long as there has been something.
    """
    found = list(_of_kafka(hosts))
    for host in hosts:
        found += (_at(host.host, one) for one in _of_host(host, waited))
    return found


def _at(host: str | None, one: Trouble) -> Trouble:
    return replace(one, host=host, finding=on_host(one.finding, host), remedy=on_host(one.remedy, host))


def _of_host(host: HostSample, waited: Mapping[tuple[str, int], float] | None) -> Iterator[Trouble]:
    """All but the clusters that can't be reached."""
    locked = {row.key: one for row, one in _locked(host)}
    alive = {one.instance for one in host.processes}
    yield from _of_workers(host)
    unled = {row.name for row in host.partitions if row.leader is None}
    for name, group in groupby(host.partitions, lambda one: one.name):
        rows = list(group)
        missed = {one.use for one in host.kafka if one.tube == name}
        yield from _of_queue(rows)
        owner = rows[0].companion_of
        refused = [one for one in host.complaints if one.use == "refused" and one.tube == (owner or name)]
        leaders = {row.leader for row in rows}
        kept = [one for one in refused if one.client_id in leaders]
        if "election" not in missed and owner not in unled:  # else the line of its tube says so
            companions = [row for row in host.partitions if row.companion_of == name and name in unled]
            unable = [one for one in refused if one not in kept]
            yield from _unled(rows, companions, waited, host.awaited(name), unable)
        if kept and owner is None:
            finding = _refusals(kept, "does not serve all of it as the file says")
            subject = f"configuration of {name}"
            yield Trouble(Kind.CONFIG_REFUSED, Level.WARN, subject, finding, _LOOKS_AGAIN, name)
        each = (
            (row.partition, one)
            for row in rows
            for one in _of_partition(row, missed, locked.get(row.key), alive)
        )
        yield from _alike(name, each)
        if "delivery" not in missed:
            yield from _resting(rows)
    for name, slowed in groupby(host.hindered, lambda one: one.tube):
        each = ((one.partition, _hindrance(one, locked.values())) for one in slowed)
        yield from _alike(name, each)
    for one in host.unverified:
        yield Trouble(
            Kind.COPY_DIFFERS if one.cause == "sample" else Kind.SOURCE_CHANGED,
            Level.FAIL if one.is_certain else Level.WARN,
            f"{'copy' if one.kind == 'tube' else 'messages'} of {one.tube}",
            one.finding,
            one.remedy,
            one.tube,
        )


def _of_workers(host: HostSample) -> Iterator[Trouble]:
    """Workers that hang, and changes of tables that workers can't follow."""
    for worker in host.workers:
        if worker.standstill is not None and (worker.runs_out_in or 0.0) >= 0:  # else its partitions are lost
            subject = f"worker {worker.client_id or worker.instance}"
            finding = f"{subject} {worker.standstill}"
            yield Trouble(Kind.WORKER_HANGS, Level.WARN, subject, finding, _KILL)
    unfollowed = {(one.tube, one.reason): None for one in host.complaints if one.use == "unfollowed"}
    for tube, reason in unfollowed:
        finding = f"attached tables were changed, and a worker warns: {reason}"
        remedy = "do what the reason says; workers look again every half minute"
        yield Trouble(Kind.TABLES_NOT_FOLLOWED, Level.WARN, f"tables of {tube}", finding, remedy, tube)


# --- of single partitions -------------------------------------------------------------------------


class _Of(NamedTuple):
    kind: Kind
    level: Level
    reason: str
    remedy: str
    what: str = ""
    """Ends in the seconds."""
    seconds: float | None = None
    in_line: bool = False
    tried_in: float | None = None
    """Seconds until the next try, where the worker has named it."""


def _alike(name: str, each: Iterable[tuple[int, _Of]]) -> Iterator[Trouble]:
    """Partitions of one tube or outbox that have the same trouble share it; it is as old as the oldest."""
    found: dict[_Of, list[tuple[int, _Of]]] = {}
    for partition, one in each:
        found.setdefault(one._replace(seconds=None, tried_in=None), []).append((partition, one))
    for one, several in found.items():
        partitions = tuple(sorted(partition for partition, _ in several))
        known = [each.seconds for _, each in several if each.seconds is not None]
        what = f"{one.what} {for_people(max(known))}" if known else one.what
        tries = [each.tried_in for _, each in several if each.tried_in is not None]
        what += _tried_again(min(tries)) if tries else ""
        finding = f"{what}: {one.reason}" if what else one.reason
        subject = f"{name_partitions(partitions)} of {name}"
        yield Trouble(one.kind, one.level, subject, finding, one.remedy, name, partitions, one.in_line)


def _tried_again(seconds: float) -> str:
    return ", tried again now" if seconds < 1 else f", tried again in {for_people(seconds)}"


def _of_partition(
    row: Partition, missed: Collection[str], locked: Hindrance | None, alive: Collection[str | None]
) -> Iterator[_Of]:
    """Not what other lines report: `missed`, the uses for which its workers can't reach Kafka, and `locked`,
    the lock that keeps its rows from being read.

    `alive`: the digits of processes whose sessions are open.
    """
    if row.state == "lost" and "election" not in missed:
        reason = f"its leader {row.leader} no longer renews its term"
        if row.instance_id is not None and digits(row.instance_id) in alive:
            reason += ", though its sessions are still open: it hangs, was stopped, or is cut off"
        remedy = f"{_start([row])}; if the lost one hangs, kill it with SIGKILL: no change is lost"
        yield _Of(Kind.LEADER_LOST, Level.FAIL, reason, remedy, "lost for", row.renewed_ago, in_line=True)
    if "delivery" not in missed and row.sink_down is not None:
        remedy = _after_outage("sink", row)
        reason = row.sink_down if row.refill is None else row.sink_down.partition(_ADVICE)[0]
        yield _Of(
            *(Kind.SINK_DOWN, Level.FAIL, reason, remedy, "sink down for", row.sink_down_for),
            tried_in=row.sink_tried_in,
        )
    if row.source_down is not None and locked is None:
        remedy = _after_outage("source", row)
        yield _Of(
            *(Kind.SOURCE_DOWN, Level.FAIL, row.source_down, remedy, "source down for", row.source_down_for),
            tried_in=row.source_tried_in,
        )
    if row.failing is not None:
        remedy = "see the log of the worker; fix the cause, or report it if it is a bug in pytube"
        what = f"{row.failing_terms} terms have failed in a row, for"
        yield _Of(Kind.TERMS_FAIL, Level.FAIL, row.failing, remedy, what, row.failing_for)
    if row.problem is not None:
        yield _Of(Kind.NOT_READ, Level.WARN, row.problem, "see the rights of this role", "not looked at")


def _resting(rows: Sequence[Partition]) -> Iterator[Trouble]:
    """Topics of one outbox that take nothing: one for each, whatever partitions have records for it."""
    found: dict[tuple[str, bool], list[tuple[int, RestingTopic]]] = {}
    for row in rows:
        for topic in row.resting:
            found.setdefault((topic.topic, topic.park), []).append((row.partition, topic))
    name = rows[0].name
    for several in found.values():
        longest = max((topic for _, topic in several), key=lambda topic: topic.since)
        topic = replace(
            longest,
            records=sum(topic.records for _, topic in several),
            tried_in=min(topic.tried_in for _, topic in several),
        )
        numbers = tuple(sorted(partition for partition, _ in several))
        subject = f"{name_partitions(numbers)} of {name}"
        yield Trouble(
            Kind.TOPIC_RESTS, Level.FAIL, subject, str(topic), _after_rest(name, topic), name, numbers
        )


def _after_rest(outbox: str, topic: RestingTopic) -> str:
    """The remedy for a topic that accepts no records. Kafka is up: an outage has its own line."""
    if topic.reason.startswith(NO_ANSWER):
        return (
            "check in Kafka that each partition of the topic has a leader; its records are then sent "
            "automatically"
        )
    fix = "create the topic" if _UNKNOWN_TOPIC in topic.reason else "fix the cause that the reason names"
    return (
        f"{fix}; its records are then sent automatically, in order. Only if it is to get none of them: "
        f"pytube outbox park {outbox} --topic {quote(topic.topic)} sets them aside, and later records of "
        "their keys may overtake them"
    )


def _after_outage(what: str, row: Partition) -> str:
    """The remedy for a sink or a source that is down; the worker retries automatically."""
    if row.kind == "outbox":
        return "bring Kafka up, or fix the cause that the reason names; nothing has to be restarted"
    if what == "sink" and row.sink_emptied_for is not None:
        if row.refill is not None:
            said = _REFILLED[row.refill]
            return f"the sink has lost its documents; {said}: pytube backfill status {row.name}"
        return f"the sink has lost its documents: pytube backfill start {row.name} fills it again"
    if what == "source":
        return (
            "do what the reason says: usually a GRANT, or a query or a document to correct in the "
            "configuration; workers reload a changed file on SIGHUP, or automatically with --watch"
        )
    return (
        "bring the sink up, or fix the cause that the reason names; workers reload a changed file on SIGHUP, "
        f"or automatically with --watch; to test the sink: pytube sink check {row.name}"
    )


def _locked(host: HostSample) -> Iterator[tuple[Partition, Hindrance]]:
    """Partitions whose rows can't be read, each with the lock that is the reason.

    A read is given up after `answer_timeout`, and names the lock that it waited for. As two troubles,
    the second one would ask for a GRANT.
    """
    locks = {(one.tube, one.partition): one for one in host.hindered if one.what == "locked"}
    for row in host.partitions:
        lock = locks.get((row.name, row.partition))
        if lock is not None and row.source_down is not None and _lock_of(lock) in row.source_down:
            yield row, lock


def _lock_of(lock: Hindrance) -> str:
    """The lock, without who has it: some may have let it go since the read was given up."""
    return lock.reason.partition(" is locked")[0] + " is locked"


def _hindrance(one: Hindrance, blocking: Collection[Hindrance]) -> _Of:
    """`blocking`: those behind which nothing is read any more."""
    remedy = "do that; the worker then continues automatically"
    level = Level.FAIL if one in blocking else Level.WARN
    kind, words = _HINDRANCES[one.what]
    return _Of(kind, level, one.reason, remedy, words, one.seconds)


# --- of a tube or an outbox -----------------------------------------------------------------------


def _of_queue(rows: Sequence[Partition]) -> Iterator[Trouble]:
    name, kind = rows[0].name, rows[0].kind
    yield from _emptied(rows[0])
    yield from _pauses(rows)
    parked = [row for row in rows if row.parked is not None and row.parked.number]
    if parked:
        error = next((row.parked_error.rstrip(".") for row in parked if row.parked_error), "")
        # A worker has the code of its transforms from when it began.
        restart = ", restart the workers" if error.startswith("transform ") else ""
        remedy = f"pytube park list {name} shows why; fix the cause{restart}, then: pytube park retry {name}"
        if kind == "outbox":
            remedy = _after_parking(parked, error)
        finding = _parked(parked, error)
        yield Trouble(Kind.PARKED, Level.WARN, f"{kind} {name}", finding, remedy, name)


def _emptied(row: Partition) -> Iterator[Trouble]:
    """Whether the sink of a tube has lost its documents; `row`: any partition of it."""
    if row.sink_emptied_for is None:
        return
    finding = (
        f"the sink has lost its documents, or was replaced; found {for_people(row.sink_emptied_for)} ago"
    )
    remedy = (
        f"pytube backfill start {row.name} fills it again (with --supersede if an older backfill is "
        f"running); if it may be complete anyway: pytube verify {row.name}"
    )
    if row.refill is not None:
        finding = f"{finding}; {_REFILLED[row.refill]}"
        remedy = f"wait for it: pytube backfill status {row.name}"
    subject = f"documents of {row.name}"
    yield Trouble(Kind.SINK_EMPTIED, Level.FAIL, subject, finding, remedy, row.name)


def _parked(rows: Sequence[Partition], error: str) -> str:
    """How many documents or records are, and why the last one failed."""
    count = Count.total(row.parked for row in rows)
    assert count is not None
    noun = "document" if rows[0].kind == "tube" else "record"
    said = f"{say_count(count.number, noun) if count.is_exact else f'{count} {noun}s'} parked"
    if behind := sum(row.parked_behind or 0 for row in rows):
        said += f" ({say_failed(sum(row.parked_failed or 0 for row in rows), behind)})"
        return f"{said}; the latest error: {error}" if error else said
    return f"{said}, one of them: {error}" if error else said


def _after_parking(rows: Sequence[Partition], error: str) -> str:
    name = rows[0].name
    count = sum(row.parked_failed or row.parked.number for row in rows if row.parked is not None)
    late = f"{COME_LATE}; " if any(row.parked_overtaken for row in rows) else ""
    which = "a record" if count == 1 else "records"
    chosen = "ID" if count == 1 else "--topic TOPIC, or ID by ID"
    freed = "; the records behind are then sent" if any(row.parked_behind for row in rows) else ""
    return (
        f"pytube outbox parked list {name} shows why; {_mending(name, error)}, then: "
        f"pytube outbox parked retry {name} --all; {late}"
        f"for {which} that can't be repaired: pytube outbox parked discard {name} {chosen}{freed}"
    )


def _mending(outbox: str, error: str) -> str:
    if "message.max.bytes" in error:
        return (
            f'set a larger "message.max.bytes" in [outbox.{outbox}.kafka_options], and max.message.bytes at '
            "the topic; workers reload the file on SIGHUP, or automatically with --watch"
        )
    if "header" in error:
        return "fix it by an UPDATE of kafka_header_keys and kafka_header_values in the outbox's table"
    if "Message size too large" in error:
        return "raise max.message.bytes of the topic"
    return "fix the cause"


def _pauses(rows: Sequence[Partition]) -> Iterator[Trouble]:
    paused: dict[tuple[str, str, str | None], list[int]] = {}
    for row in rows:
        if row.paused is not None:
            pause = row.paused_kind or "operator"
            paused.setdefault((pause, row.paused, row.paused_until), []).append(row.partition)
    name, kind = rows[0].name, rows[0].kind
    for (pause, reason, until), numbers in paused.items():
        some = () if len(numbers) == len(rows) else tuple(numbers)
        subject = f"{name_partitions(some)} of {name}" if some else f"{kind} {name}"
        if pause == "operator":
            end = "until it is resumed" if until is None else f"until {until}"
            finding, remedy = f"paused {end}: {reason}", f"pytube resume {name}"
            yield Trouble(Kind.PAUSED, Level.WARN, subject, finding, remedy, name, some)
        else:
            finding = f"stopped, by {reason}"
            remedy = _after_stop(pause, name)
            yield Trouble(Kind.STOPPED, Level.FAIL, subject, finding, remedy, name, some)


def _after_stop(pause: str, name: str) -> str:
    if pause == "park_limit":
        return (
            f"fix the cause, retry or discard the parked documents (pytube park list {name}), then: "
            f"pytube resume {name}"
        )
    return f"fix the cause, or discard the document (pytube pods discard), then: pytube resume {name}"


def _unled(
    rows: Sequence[Partition],
    companions: Sequence[Partition],
    waited: Mapping[tuple[str, int], float] | None,
    back: Sequence[Back],
    refused: Sequence[Complaint],
) -> Iterator[Trouble]:
    """Partitions without a leader: the ones where something waits for long, and the others.

    The partitions of its companions are among the former where there are any: who serves the one serves the
    other.
    """

    def is_late(row: Partition) -> bool:
        seconds = oldest(row) if waited is None else waited.get((row.name, row.partition))
        return row.paused is None and (seconds or 0.0) > _PATIENCE

    free = [row for row in (*rows, *companions) if row.leader is None]
    late = [row for row in free if is_late(row)]
    if any(row in companions for row in late):
        late = free
    elif late:
        late += [row for row in free if row in companions]
    others = [row for row in free if row not in late]
    name = rows[0].name
    remedy = _await(back) if back else _LOOKS_AGAIN if refused else _start(rows)
    for some in filter(None, (late, others)):
        level = Level.FAIL if some is late and not back else Level.WARN
        finding = f"no worker leads {_which(some)}"
        problem = None if some is late else next((row.problem for row in some if row.problem), None)
        if problem is not None:
            finding += f"; the backlog there was not checked: {problem}"
        elif some is late or all(row.paused is None for row in some):
            finding += f"; {_waits_there(some)}"
        finding += f"; {_refusals(refused)}" if refused and not back else ""
        yield Trouble(Kind.NOT_LED, level, f"leaders of {name}", finding, remedy, name)


def _refusals(refused: Sequence[Complaint], what: str = "can't serve it") -> str:
    found: dict[str, set[str]] = {}
    for one in refused:
        found.setdefault(one.reason, set()).add(one.client_id)
    return "; ".join(
        f"{'worker' if len(who) == 1 else 'workers'} {', '.join(sorted(who))} {what}: {reason}"
        for reason, who in found.items()
    )


def _waits_there(rows: Sequence[Partition]) -> str:
    age = max((seconds for row in rows if (seconds := oldest(row)) is not None), default=None)
    if age is None:
        return "nothing is queued there"
    noun = "pods" if rows[0].kind == "tube" else "records"
    waiting = sum(one.number for row in rows for one in (row.waiting, row.backfill) if one is not None)
    number = f"about {waiting}" if waiting >= _MANY else f"{waiting}"
    documents = Count.total(row.documents for row in rows)
    if documents is not None and documents.number != waiting:
        number += f" with {documents} documents"
    return f"{noun} queued there: {number}, the oldest for {for_people(age)}"


def oldest(row: Partition) -> float | None:
    """Age of the first pod or record that waits."""
    return max((lag for lag in (row.lag, row.backfill_lag) if lag is not None), default=None)


def _which(rows: Collection[Partition]) -> str:
    """With the name of the companion, if it is of one."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault("" if row.companion_of is None else f" of {row.name}", []).append(row.partition)
    return ", and ".join(f"{name_partitions(numbers)}{of}" for of, numbers in found.items())


def _start(rows: Sequence[Partition]) -> str:
    kind, name = rows[0].kind, rows[0].companion_of or rows[0].name
    return (
        f"start a worker: pytube worker --{kind} {name}; if one runs, see its log, and whether its file has "
        f"[{kind}.{name}]; it loads a changed file at SIGHUP"
    )


def _await(back: Sequence[Back]) -> str:
    """What to do while the election is about to give them out."""
    who = ", ".join(f"worker {one.client_id}" for one in back)
    since = for_people(min(one.seconds for one in back))
    return (
        f"start no other worker: Kafka has been back for {since}, and the election is about to give them to "
        f"{who}; if that takes longer than a minute, see the log"
    )


# --- of Kafka -------------------------------------------------------------------------------------


def _of_kafka(hosts: Sequence[HostSample]) -> Iterator[Trouble]:
    """One for each unreachable cluster, with the queues that wait for it. Kafka is not asked."""
    kafka = [one for host in hosts for one in host.kafka]
    unled = {(one.host, one.name) for host in hosts for one in host.partitions if not one.is_led}
    remedy = (
        "bring it up, or find out from the workers' machines why they can't reach it; where it answers, but "
        "not for a group, see the log of the broker that coordinates the group, and restart that broker; "
        "they then continue automatically"
    )
    for servers in dict.fromkeys(one.bootstrap_servers for one in kafka):
        found = [one for one in kafka if one.bootstrap_servers == servers]
        since = min(one.since for one in found).astimezone(UTC)
        last = max(found, key=lambda one: one.seen_at)
        workers = ", ".join(sorted({one.client_id for one in found}))
        sentence = f"Kafka at {servers} can't be used by {workers} since {since:%Y-%m-%d %H:%M:%S} UTC"
        sentence += f": {last.reason}"
        for what, of in (
            ("no worker can be elected for partitions of", _need(found, "election") & unled),
            ("nothing is delivered there for", _need(found, "delivery")),
        ):
            if of:
                names = ", ".join(sorted(name if host is None else f"{host}:{name}" for host, name in of))
                sentence += f"; {what}: {names}"
        yield Trouble(Kind.KAFKA_UNREACHABLE, Level.FAIL, "Kafka", printable(sentence), remedy)


def _need(found: Iterable[Complaint], use: Literal["election", "delivery"]) -> set[tuple[str | None, str]]:
    """Host and name of each tube and outbox that needs an unreachable cluster for `use`."""
    return {(one.host, one.tube) for one in found if one.use == use}
