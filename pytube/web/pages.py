"""The pages that show the present state: the fleet, one tube or outbox, one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

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
    Columns,
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
    short,
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
        table(f"Partitions of {name}", _PARTITIONS, queue.partitions, numbers=6),
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
    others = disagreements(sample, pytube.__version__) if is_all else []
    disagree = [str(one) for one in others if not any(one.finding in line for line in found)]
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
    columns: Columns = {
        **_host(site),
        "name": lambda queue: link(queue.name, "/tube", name=queue.name, host=queue.host),
        "kind": lambda queue: queue.kind,
        "partitions": lambda queue: joined(_summary(queue)),
        "waiting": lambda queue: count(Count.total(one.waiting for one in queue.partitions)),
        "lag": lambda queue: length(queue.lag),
        "in": lambda queue: rate(queue.rate_in),
        "out": lambda queue: rate(queue.rate_out),
        "parked": lambda queue: count(queue.parked),
        "retries": lambda queue: count(queue.retrying),
    }
    return table("Tubes and outboxes", columns, sample.queues, numbers=6)


def _host(site: Site) -> Columns:
    """The first column, where there are several."""
    return {"host": lambda one: one.host} if site.has_hosts else {}


def _summary(queue: Queue) -> Iterator[Any]:
    states = [one.state for one in queue.partitions]
    for at, name in enumerate(sorted(set(states), key=list(STATES).index)):
        if at:
            yield ", "
        yield tag("span", f"{states.count(name)} {name}", class_=STATES[name])


_PARTITIONS: Final[Columns] = {
    "partition": lambda one: link(
        f"partition {one.partition}", "/partition", tube=one.name, partition=one.partition, host=one.host
    ),
    "state": lambda one: state(one.state),
    "leader": lambda one: one.leader or "none",
    "epoch": lambda one: one.epoch,
    "waiting": lambda one: one.counted,
    "backfill": lambda one: one.backfill,
    "lag": lambda one: length(one.lag),
    "parked": lambda one: count(one.parked),
    "retries": lambda one: count(one.retrying),
}


def _workers(site: Site, sample: FleetSample) -> Html:
    if not sample.workers:
        return tag("p", "No worker is known.")
    columns: Columns = {
        **_host(site),
        "worker": lambda one: one.client_id,
        "election": lambda one: ", ".join(sorted(one.elections)),
        "leads": _leads,
        "waits for": lambda one: ", ".join(one.waits_for),
        "seen": lambda one: ago(one.seen_ago),
    }
    return table("Workers", columns, sample.workers)


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
        ("Throughput, pods a second", "throughput", sum, short),
        ("Keys to be sent again", "retries", sum, short),
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


_BACKFILLS: Final[Columns] = {
    "number": lambda row: row["backfill_id"],
    "table": lambda row: row["tbl"],
    "state": lambda row: f"{row['state']}, paused" if row["paused"] else row["state"],
    "rows": lambda row: row["rows_total"],
    "inserted": lambda row: row["rows_done"],
    "delivered": lambda row: f"~{row['rows_delivered']}",
    "note": lambda row: row["note"],
}


def _backfills(connection: psycopg.Connection, place: Place, queue: Queue) -> Iterator[Html]:
    rows = Backfills(connection, place.schema).active(queue.name)
    if rows:
        yield tag("h2", "Backfills under way")
        yield table("Backfills under way", _BACKFILLS, rows)


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
    columns: Columns = {
        "key": lambda row: (
            "(control pod)"
            if row.id is None
            else link(row.id, "/parked", tube=name, shard=row.shard, key=row.id, host=host)
        ),
        "shard": lambda row: row.shard,
        "attempts": lambda row: row.attempts,
        "since": lambda row: day_time(row.parked_at),
        "error": lambda row: row.error if len(row.error) <= 300 else f"{row.error[:300]}…",
    }
    yield table("Parked documents, the latest first", columns, rows)
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
    yield table("The audit, the latest first", _ACTIONS, rows)


_ACTIONS: Final[Columns] = {
    "when": lambda row: day_time(row.done_at),
    "who": lambda row: row.done_by,
    "client": lambda row: row.client,
    "action": lambda row: row.action,
    "details": lambda row: orjson.dumps(row.details).decode(),
}


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _on(host: str | None) -> str:
    return "" if host is None else f" on host {host}"
