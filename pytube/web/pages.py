"""The pages that show what goes on: the fleet, one tube or outbox, one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import orjson
import psycopg
from starlette.requests import Request
from starlette.responses import Response

import pytube
from pytube import admin
from pytube.admin import Parking
from pytube.errors import DatabaseUnavailable, PytubeError, UnknownTube
from pytube.health.disagreements import disagreements
from pytube.health.fleet import FleetSample, Partition, Queue, Worker
from pytube.web.actions import Wanted, buttons, number, text
from pytube.web.graphs import Graph, drawn
from pytube.web.history import MOST_SERIES, Series
from pytube.web.html import Html, joined, link, tag
from pytube.web.parts import STATES, ago, count, facts, length, rate, state, table
from pytube.web.site import Place, Site, clock_time, day_time, page

_PARKED = 50
"""Parked documents that the page of a tube lists."""
_AUDIT = 10


def overview(site: Site, request: Request) -> Response:
    """All tubes and outboxes of all hosts."""
    sample = site.sampler.latest
    content = [
        _troubles(site, sample, sample.partitions, is_all=True),
        _cards(sample.queues, sample.workers),
        tag("h2", "Tubes and outboxes"),
        _queues(site, sample),
        tag("h2", "Workers"),
        _workers(site, sample),
        *_graphs(site, lambda _: True, "all"),
    ]
    return page(request, "The fleet", content, refreshes=True)


def tube(site: Site, request: Request) -> Response:
    """One tube, or one outbox."""
    name, host = text(request.query_params, "name"), request.query_params.get("host")
    place, sample = site.place(host), site.sampler.latest
    queue = _found(sample, host, name)
    wanted = [Wanted(action, name, host) for action in ("pause", "resume")]
    content = [
        _troubles(site, sample, queue.partitions),
        _cards([queue], []),
        buttons(request, *wanted),
        tag("h2", "Partitions"),
        _partitions(queue),
        *_graphs(site, lambda one: (one.host, one.name) == (host, name), name),
        *_by_hand(request, place, queue),
    ]
    return page(request, f"{queue.kind.capitalize()} {name}{_on(host)}", content, refreshes=True)


def partition(site: Site, request: Request) -> Response:
    """One partition."""
    given = request.query_params
    name, host, which = text(given, "tube"), given.get("host"), number(given, "partition")
    site.place(host)
    sample = site.sampler.latest
    queue = _found(sample, host, name)
    one = next((one for one in queue.partitions if one.partition == which), None)
    if one is None:
        raise UnknownTube(f"{name!r} has no partition {which}; it has {len(queue.partitions)}, from 0 on")
    wanted = [Wanted(action, name, host, which) for action in ("pause", "resume")]
    content = [
        tag("p", link(f"{queue.kind.capitalize()} {name}", "/tube", name=name, host=host)),
        _troubles(site, sample, [one]),
        facts(
            {
                "state": state(one.state),
                "leader": one.leader or "nobody",
                "epoch": one.epoch,
                "leads for": length(one.leads_for),
                "renewed": ago(one.renewed_ago),
                "waiting": one.counted,
                "lag": length(one.lag),
                "backfill": one.backfill,
                "parked": count(one.parked),
                "to be sent again": count(one.retrying),
            }
        ),
        buttons(request, *wanted),
        *_graphs(
            site,
            lambda series: series in (Series(host, name, which), Series(host, name, None)),
            f"partition {which}; throughput is of all of {name}",
        ),
    ]
    return page(request, f"Partition {which} of {name}{_on(host)}", content, refreshes=True)


def _found(sample: FleetSample, host: str | None, name: str) -> Queue:
    """The tube or outbox; `UnknownTube`, or `DatabaseUnavailable` when that can't be told."""
    queue = next((one for one in sample.queues if (one.host, one.name) == (host, name)), None)
    if queue is None:
        if host in sample.down:
            raise DatabaseUnavailable(sample.down[host])
        raise UnknownTube(f"there is no tube or outbox {name!r}; the overview has those that there are")
    return queue


# --- what is wrong ------------------------------------------------------------------------------


def _troubles(
    site: Site, sample: FleetSample, partitions: Iterable[Partition], *, is_all: bool = False
) -> Html:
    """What keeps documents from being delivered, what disagrees, and what was not looked at."""
    found = [f"{_where(host)}was not read: {reason}" for host, reason in sample.down.items()]
    if (late := site.sampler.why_late()) is not None:
        found.append(f"All this is of {clock_time(sample.at.timestamp())}: {late}")
    found += _troubles_of(partitions)
    disagree = [str(one) for one in disagreements(sample, pytube.__version__)] if is_all else []
    unseen = [
        what if one.host is None else f"Host {one.host}: {what}"
        for one in sample.hosts
        for what in one.not_read
    ]
    boxes = [
        _box("Troubles", found, "troubles"),
        _box("What disagrees", disagree, "troubles mild"),
        _box("Not looked at", unseen, "notice"),
    ]
    if found or disagree:
        return joined(boxes)
    return joined([tag("p", "Nothing is wrong, as far as was looked.", class_="good"), *boxes])


def _box(title: str, lines: Sequence[str], class_: str) -> Html | None:
    if not lines:
        return None
    shown = tag("ul", *(tag("li", line) for line in lines))
    return tag("section", tag("strong", f"{title}: {len(lines)}"), shown, class_=class_, aria_label=title)


def _troubles_of(partitions: Iterable[Partition]) -> Iterator[str]:
    """A line for each trouble, with the partitions of one tube that have the same."""
    alike: dict[tuple[str | None, str, str, str], list[tuple[int, float | None]]] = {}
    for one in partitions:
        for what, reason, seconds in _each_trouble(one):
            alike.setdefault((one.host, one.name, what, reason), []).append((one.partition, seconds))
    for (host, name, what, reason), found in alike.items():
        numbers = ", ".join(str(number) for number, _ in found)
        known = [seconds for _, seconds in found if seconds is not None]
        time = f" {length(max(known))}" if known else ""
        where = "" if host is None else f"host {host}: "
        yield f"{where}{name} partition{'s' if len(found) > 1 else ''} {numbers}: {what}{time}: {reason}"


def _each_trouble(one: Partition) -> Iterator[tuple[str, str, float | None]]:
    """What is wrong, the reason, and seconds that `what` ends in."""
    if one.state == "lost":
        yield "lost for", f"its leader {one.leader} renews its term no more", one.renewed_ago
    if one.state == "free":
        yield "free", "nobody leads, so nothing is delivered; start a worker", None
    if one.sink_down is not None:
        yield "sink down for", one.sink_down, one.sink_down_for
    if one.source_down is not None:
        yield "source down for", one.source_down, one.source_down_for
    if one.paused is not None:
        what = "paused" if one.paused_kind == "operator" else "stopped"
        left = "until it is resumed" if one.paused_for is None else "for another"
        yield f"{what} {left}", one.paused, one.paused_for
    if one.problem is not None:
        yield "not counted", one.problem, None


def _where(host: str | None) -> str:
    return "The database " if host is None else f"Host {host} "


# --- tables -------------------------------------------------------------------------------------


def _cards(queues: Sequence[Queue], workers: Sequence[Worker]) -> Html:
    partitions = [one for queue in queues for one in queue.partitions]
    led = sum(one.state not in ("free", "lost") for one in partitions)
    values: dict[str, Any] = {
        "partitions led": f"{led} of {len(partitions)}",
        "worst lag": length(max((one.lag for one in partitions if one.lag is not None), default=None)),
        "in": rate(_sum(queue.rate_in for queue in queues)),
        "out": rate(_sum(queue.rate_out for queue in queues)),
        "parked": count(_sum(queue.parked for queue in queues)),
        "to be sent again": count(_sum(queue.retrying for queue in queues)),
    }
    if workers:
        values = {"workers": len({worker.instance for worker in workers})} | values
    return facts(values)


def _queues(site: Site, sample: FleetSample) -> Html:
    if not sample.queues and sample.down:
        return tag("p", "What tubes there are is not known.")
    if not sample.queues:
        return tag("p", "There are no tubes; make one with: pytube tube create NAME")
    host = ["host"] if site.has_hosts else []
    rows = (
        [
            *([queue.host] if site.has_hosts else []),
            link(queue.name, "/tube", name=queue.name, host=queue.host),
            queue.kind,
            joined(_summary(queue)),
            _waiting(queue),
            length(queue.lag),
            rate(queue.rate_in),
            rate(queue.rate_out),
            count(queue.parked),
            count(queue.retrying),
        ]
        for queue in sample.queues
    )
    headings = [*host, "name", "kind", "partitions", "waiting", "lag", "in", "out", "parked", "retries"]
    return table("Tubes and outboxes", headings, rows, numbers=6)


def _summary(queue: Queue) -> Iterator[Any]:
    """How many partitions are in each state."""
    states = [one.state for one in queue.partitions]
    for at, name in enumerate(sorted(set(states), key=list(STATES).index)):
        if at:
            yield ", "
        yield tag("span", f"{states.count(name)} {name}", class_=STATES[name])


def _waiting(queue: Queue) -> str:
    """The sum; a lower bound where not all was counted."""
    counts = [one.counted for one in queue.partitions]
    numbers = ["".join(c for c in count if c.isdigit()) for count in counts]
    if "" in numbers:
        return "?"
    total = sum(map(int, numbers))
    return f"{total}" if all(count.isdigit() for count in counts) else f"{total}+"


def _partitions(queue: Queue) -> Html:
    rows = (
        [
            link(
                f"partition {one.partition}",
                "/partition",
                tube=one.name,
                partition=one.partition,
                host=one.host,
            ),
            state(one.state),
            one.leader or "nobody",
            one.epoch,
            one.counted,
            one.backfill,
            length(one.lag),
            count(one.parked),
            count(one.retrying),
        ]
        for one in queue.partitions
    )
    headings = ["partition", "state", "leader", "epoch", "waiting", "backfill", "lag", "parked", "retries"]
    return table(f"Partitions of {queue.name}", headings, rows, numbers=6)


def _workers(site: Site, sample: FleetSample) -> Html:
    if not sample.workers:
        return tag("p", "No worker is known.")
    host = ["host"] if site.has_hosts else []
    rows = (
        [
            *([one.host] if site.has_hosts else []),
            one.client_id,
            ", ".join(sorted(one.elections)),
            _leads(one),
            ", ".join(one.waits_for),
            ago(one.seen_ago),
        ]
        for one in sample.workers
    )
    return table("Workers", [*host, "worker", "election", "leads", "waits for", "seen"], rows)


def _leads(worker: Worker) -> str:
    names = sorted({name for name, _ in worker.leads})
    return "; ".join(
        f"{name}: {', '.join(str(number) for other, number in worker.leads if other == name)}"
        for name in names
    )


# --- graphs -------------------------------------------------------------------------------------


def _graphs(site: Site, of: Callable[[Series], bool], what: str) -> list[Html]:
    history = site.sampler.history
    shown: list[tuple[str, str, Callable[[Sequence[float]], float], Callable[[float], str]]] = [
        ("Lag", "lag", max, length),
        ("Throughput, pods a second", "throughput", sum, _short),
        ("Keys to be sent again", "retries", sum, _short),
    ]
    figures = []
    for title, name, combine, told in shown:
        times, values = history.values(name, of, combine)
        figures.append(drawn(Graph(title, times, values, told, clock_time, 3 * site.sampler.interval)))
    times = history.times()
    since = f"Of {what}, since {clock_time(times[0])}. Samples: {len(times)}, in the memory of this server."
    if history.is_full:
        since += f" There are more than {MOST_SERIES} partitions, tubes and outboxes; the rest has none."
    return [
        tag("h2", "The last hours"),
        tag("p", since, class_="quiet"),
        tag("div", *figures, class_="graphs"),
    ]


# --- what was done by hand, and is to be ----------------------------------------------------------


def _by_hand(request: Request, place: Place, queue: Queue) -> Iterator[Html | None]:
    """What is parked, and the audit. These are read for this page alone."""
    try:
        with place.connect() as connection:
            if queue.kind == "tube":
                yield from _parked(request, connection, place, queue)
            yield from _audit(connection, place, queue)
    except (PytubeError, psycopg.Error) as error:  # what was sampled is shown all the same
        yield tag("p", f"Parked documents and the audit were not read: {error}", class_="notice")


def _parked(
    request: Request, connection: psycopg.Connection, place: Place, queue: Queue
) -> Iterator[Html | None]:
    name, host = queue.name, queue.host
    count = admin.see_parked(connection, Parking(name), place.schema).count
    rows = admin.list_parked(connection, Parking(name), place.schema, _PARKED)
    yield tag("h2", f"Parked documents: {count}")
    if not rows:
        yield tag("p", "Nothing is parked.", class_="quiet")
        return
    yield buttons(request, *(Wanted(action, name, host) for action in ("retry", "drop")))
    cells = (
        [
            "(control pod)"
            if row.id is None
            else link(row.id, "/parked", tube=name, shard=row.shard, key=row.id, host=host),
            row.shard,
            row.attempts,
            day_time(row.parked_at),
            row.error if len(row.error) <= 300 else f"{row.error[:300]}…",
        ]
        for row in rows
    )
    yield table("Parked documents, the latest first", ["key", "shard", "attempts", "since", "error"], cells)
    if count > len(rows):
        yield tag(
            "p", f"{count - len(rows)} more are not shown; `pytube park list` has them.", class_="notice"
        )


def _audit(connection: psycopg.Connection, place: Place, queue: Queue) -> Iterator[Html]:
    rows = admin.audit(connection, place.schema, queue.name, _AUDIT)
    yield tag("h2", "Done by hand")
    if not rows:
        yield tag("p", "Nothing.", class_="quiet")
        return
    cells = (
        [day_time(row.done_at), row.done_by, row.client, row.action, orjson.dumps(row.details).decode()]
        for row in rows
    )
    yield table("The audit, the latest first", ["when", "who", "client", "action", "details"], cells)


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _on(host: str | None) -> str:
    return "" if host is None else f" on host {host}"
