"""The pages that show the present state: the fleet, one tube or outbox, one partition."""

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
from pytube.backfill.admin import Backfills
from pytube.errors import DatabaseUnavailable, PytubeError, UnknownTube
from pytube.health.disagreements import disagreements
from pytube.health.fleet import STATES, Count, FleetSample, Queue, Worker
from pytube.health.troubles import lines
from pytube.web.actions import Wanted, buttons, number, text
from pytube.web.html import (
    Html,
    ago,
    clock_time,
    count,
    day_time,
    facts,
    graph,
    joined,
    length,
    link,
    rate,
    state,
    table,
    tag,
)
from pytube.web.site import MOST_SERIES, Place, Series, Site, page

_PARKED = 50
"""Parked documents that the page of a tube lists."""
_AUDIT = 10


def overview(site: Site, request: Request) -> Response:
    """All tubes and outboxes of all hosts."""
    sample = site.sampler.latest
    content = [
        _troubles(site, sample, is_all=True),
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
        _troubles(site, sample.only(lambda one: (one.host, one.name) == (host, name))),
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
        _troubles(site, sample.only(lambda other: other.key == one.key)),
        facts(
            {
                "state": state(one.state),
                "leader": one.leader or "none",
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
            lambda series: series[:3] in ((host, name, which), (host, name, None)),
            f"partition {which}; throughput is of all of {name}",
        ),
    ]
    return page(request, f"Partition {which} of {name}{_on(host)}", content, refreshes=True)


def _found(sample: FleetSample, host: str | None, name: str) -> Queue:
    """The tube or outbox; `UnknownTube`, or `DatabaseUnavailable` when that is unknown."""
    queue = next((one for one in sample.queues if (one.host, one.name) == (host, name)), None)
    if queue is None:
        if host in sample.down:
            raise DatabaseUnavailable(sample.down[host])
        raise UnknownTube(f"there is no tube or outbox {name!r}; the overview lists all of them")
    return queue


# --- troubles ------------------------------------------------------------------------------


def _troubles(site: Site, sample: FleetSample, *, is_all: bool = False) -> Html:
    """Reasons why documents are not delivered, disagreements, and parts that were not checked."""
    found = lines(sample)
    if (late := site.sampler.why_late()) is not None:
        found.insert(0, f"All this is of {clock_time(sample.at.timestamp())}: {late}")
    disagree = [str(one) for one in disagreements(sample, pytube.__version__)] if is_all else []
    boxes = [
        _box("Troubles", found, "troubles"),
        _box("What disagrees", disagree, "troubles mild"),
        _box("Not looked at", sample.not_read, "notice"),
    ]
    if found or disagree:
        return joined(boxes)
    return joined(
        [
            tag("p", "Nothing is wrong, as far as was looked; `pytube doctor` looks further.", class_="good"),
            *boxes,
        ]
    )


def _box(title: str, lines: Sequence[str], class_: str) -> Html | None:
    if not lines:
        return None
    shown = tag("ul", *(tag("li", line) for line in lines))
    return tag("section", tag("strong", f"{title}: {len(lines)}"), shown, class_=class_, aria_label=title)


# --- tables -------------------------------------------------------------------------------------


def _cards(queues: Sequence[Queue], workers: Sequence[Worker]) -> Html:
    partitions = [one for queue in queues for one in queue.partitions]
    led = sum(one.state not in ("free", "lost") for one in partitions)
    values: dict[str, Any] = {
        "partitions led": f"{led} of {len(partitions)}",
        "worst lag": length(max((one.lag for one in partitions if one.lag is not None), default=None)),
        "in": rate(_sum(queue.rate_in for queue in queues)),
        "out": rate(_sum(queue.rate_out for queue in queues)),
        "parked": count(Count.total(queue.parked for queue in queues if queue.parked is not None)),
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
            count(Count.total(one.waiting for one in queue.partitions)),
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
    states = [one.state for one in queue.partitions]
    for at, name in enumerate(sorted(set(states), key=list(STATES).index)):
        if at:
            yield ", "
        yield tag("span", f"{states.count(name)} {name}", class_=STATES[name])


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
            one.leader or "none",
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
        figures.append(graph(title, times, values, told, 3 * site.sampler.interval))
    times = history.times()
    since = f"Of {what}, since {clock_time(times[0])}. Samples: {len(times)}, in the memory of this server."
    if history.is_full:
        since += f" There are more than {MOST_SERIES} partitions, tubes and outboxes; the rest has none."
    return [
        tag("h2", "The last hours"),
        tag("p", since, class_="quiet"),
        tag("div", *figures, class_="graphs"),
    ]


# --- operators' actions ----------------------------------------------------------


def _by_hand(request: Request, place: Place, queue: Queue) -> Iterator[Html | None]:
    """Parked keys, and the audit. These are read for this page alone."""
    try:
        with place.connect() as connection:
            if queue.kind == "tube":
                yield from _backfills(connection, place, queue)
                yield from _parked(request, connection, place, queue)
            yield from _audit(connection, place, queue)
    except (PytubeError, psycopg.Error) as error:  # the sample is shown anyway
        yield tag("p", f"Parked documents and the audit were not read: {error}", class_="notice")


def _backfills(connection: psycopg.Connection, place: Place, queue: Queue) -> Iterator[Html]:
    rows = Backfills(connection, place.schema).active(queue.name)
    if not rows:
        return
    yield tag("h2", "Backfills under way")
    cells = (
        [
            row["backfill_id"],
            row["tbl"],
            f"{row['state']}, paused" if row["paused"] else row["state"],
            row["rows_total"],
            row["rows_done"],
            f"~{row['rows_delivered']}",
            row["note"],
        ]
        for row in rows
    )
    headings = ["number", "table", "state", "rows", "inserted", "delivered", "note"]
    yield table("Backfills under way", headings, cells)


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
    yield tag("h2", "Operator actions")
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
