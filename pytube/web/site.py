"""What all pages have: the databases, the samples of them, who is logged in, and the frame of a page.

Readers cost databases nothing: they see the last sample, and samples of the last hours, in bounded memory.

A user who can open a connection to a port of this machine is not yet to be trusted: other users of it can,
and so can a page of any site that the operator's browser shows. Against such pages: the name in the Host
header must be allowed (or a site that lets its own name lead to 127.0.0.1 could read everything); a request
that changes anything must be a POST with a secret of the session; and no page runs scripts or can be framed.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import psycopg
from starlette.requests import Request
from starlette.responses import Response

import pytube
from pytube import clock
from pytube.config import Config
from pytube.db.database import Database
from pytube.errors import UsageError
from pytube.health.fleet import FleetSample
from pytube.health.watcher import FleetWatcher
from pytube.logs import Logger
from pytube.web.html import Html, address, clock_time, document, link, tag

REFRESH = 5
"""Seconds after which a page with the present state reloads itself."""


@dataclass(frozen=True, slots=True)
class Place:
    """One database."""

    database: Database
    config: Config | None = None
    """Of its workers; None: none was given, so that documents can't be made."""

    @property
    def schema(self) -> str:
        """Of pytube's SQL."""
        return self.database.schema

    def connect(self) -> AbstractContextManager[psycopg.Connection]:
        """A session for the time of a page."""
        return self.database.connect("pytube web")


@dataclass(frozen=True, slots=True)
class Site:
    """What all pages have in common."""

    places: Mapping[str | None, Place]
    sampler: Sampler
    sessions: Sessions | None
    """None: there is no token, and all is read-only."""

    @property
    def has_hosts(self) -> bool:
        """Whether there are several."""
        return any(host is not None for host in self.places)

    def place(self, host: str | None) -> Place:
        """The database of that name; `UsageError` when there is none."""
        if host not in self.places:
            known = ", ".join(str(name) for name in self.places if name is not None) or "none with a name"
            raise UsageError(f"there is no host {host!r}; there are: {known}")
        return self.places[host]


def session_of(request: Request) -> Session | None:
    """Who asks; None where all is read-only."""
    return getattr(request.state, "session", None)


def page(
    request: Request,
    title: str,
    content: Iterable[Any],
    *,
    refreshes: bool = False,
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    """A page with its frame. If it `refreshes`, it reloads until its reader stops that."""
    stopped = request.query_params.get("refresh") == "off"
    session = session_of(request)
    notice = None
    if session is not None and session.notice is not None:
        notice, session.notice = session.notice, None
    head = [
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("link", rel="stylesheet", href="/style.css"),
    ]
    if refreshes and not stopped:
        head.append(tag("meta", http_equiv="refresh", content=REFRESH))
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("header", *_header(request, session, refreshes=refreshes, stopped=stopped)),
        tag(
            "main",
            tag("h1", title),
            tag("p", notice, role="status", class_="notice") if notice else None,
            *content,
            id="content",
        ),
        tag("footer", f"pytube {pytube.__version__}. Made at {clock_time(datetime.now().timestamp())}."),
    )
    text = document(f"{title} · pytube", head, [body])
    return Response(text.encode("utf-8", "backslashreplace"), status, media_type="text/html")


def _header(request: Request, session: Session | None, *, refreshes: bool, stopped: bool) -> Iterator[Html]:
    yield tag("nav", link("All tubes", "/"), aria_label="Site")
    yield tag("span", class_="spring")
    if refreshes:
        query = {name: value for name, value in request.query_params.items() if name != "refresh"}
        if stopped:
            yield link(f"Refresh every {REFRESH} s", request.url.path, **query)
        else:
            yield link("Stop refreshing", request.url.path, **query, refresh="off")
    if session is None:
        yield tag("span", "read-only", class_="quiet")
    else:
        yield tag(
            "form", hidden("csrf", session.csrf), tag("button", "Log out"), method="post", action="/logout"
        )


def hidden(name: str, value: object) -> Html:
    """A field that a form carries along."""
    return tag("input", type="hidden", name=name, value=value)


def message(request: Request, title: str, text: str, status: HTTPStatus) -> Response:
    """A page that says one thing."""
    return page(request, title, [tag("p", text, role="alert", class_="notice")], status=status)


def here(request: Request) -> str:
    """The address of this page."""
    return address(request.url.path, **dict(request.query_params))


# --- the samples --------------------------------------------------------------------------------------

MOST_SERIES: Final = 3000
"""Figures of partitions, tubes and outboxes that have a history: with a sample each 5 s for 6 hours, 17 kB
each."""


class Series(NamedTuple):
    """What a history is of: a figure of a partition of a tube or outbox, or of all of it."""

    host: str | None
    name: str
    partition: int | None
    """None: of all of it, where partitions have no separate figures."""
    figure: str
    """`lag`, in seconds, 0 when nothing waits; `throughput`, pods or records a second that were taken away;
    or `retries`, keys that have failed and are to be sent again. NaN where it is not known."""


class History:
    """The samples of the last hours, each a row of numbers. Threads may share it."""

    def __init__(self, most: int) -> None:
        """`most` samples are kept."""
        self._samples: deque[tuple[float, Mapping[Series, int], array[float]]] = deque(maxlen=most)
        """When each was taken, and its numbers, with their places."""
        self._places: Mapping[Series, int] = {}
        """Shared by all samples until a series is new."""
        self._lock = threading.Lock()
        self.is_full = False
        """Whether some were left out, because there are more than `MOST_SERIES`."""

    def add(self, moment: float, figures: Mapping[Series, float]) -> None:
        """Keep one sample."""
        kept = dict(islice(figures.items(), MOST_SERIES))
        if not kept.keys() <= self._places.keys():
            known = dict.fromkeys((*self._places, *kept))
            chosen = kept if len(known) > MOST_SERIES else known
            self._places = {series: place for place, series in enumerate(chosen)}
        numbers = array("f", (kept.get(series, math.nan) for series in self._places))
        with self._lock:
            self._samples.append((moment, self._places, numbers))
        self.is_full = len(kept) < len(figures)

    def times(self) -> list[float]:
        """When the samples were taken, the oldest first."""
        with self._lock:
            return [moment for moment, _, _ in self._samples]

    def values(
        self, figure: str, of: Callable[[Series], bool], combine: Callable[[Sequence[float]], float]
    ) -> tuple[list[float], list[float]]:
        """The times, and a figure of several series in one, e.g. their sum. NaN where none is known."""
        with self._lock:
            samples = list(self._samples)
        found: list[float] = []
        wanted: list[int] = []
        last: Mapping[Series, int] | None = None
        for _, places, numbers in samples:
            if places is not last:
                last = places
                wanted = [at for series, at in places.items() if series.figure == figure and of(series)]
            known = [number for at in wanted if not math.isnan(number := numbers[at])]
            found.append(combine(known) if known else math.nan)
        return [moment for moment, _, _ in samples], found


_HOUR: Final = 3600
_LATE: Final = 3
"""Intervals after which a sample is old, but not before `_LATEST` seconds."""
_LATEST: Final = 10.0


class Sampler:
    """Takes a sample each `interval`. One thread takes them, and any number may read."""

    def __init__(self, watcher: FleetWatcher, interval: float, hours: float, log: Logger) -> None:
        """Takes the first one. The sample reports hosts that are down."""
        self._watcher = watcher
        self.interval = interval
        self._log = log
        self.history = History(max(2, math.ceil(hours * _HOUR / interval)))
        self._failure: str | None = None
        self.latest: FleetSample
        self.take()

    def take(self) -> None:
        """Take one sample, and keep its figures."""
        sample = self._watcher.sample()
        self.latest = sample
        figures: dict[Series, float] = {}
        for queue in sample.queues:
            of_queue = Series(queue.host, queue.name, None, "throughput")
            figures[of_queue] = _known(queue.rate_out)
            for one in queue.partitions:
                is_counted = one.problem is None and not (queue.kind == "outbox" and one.waiting is None)
                of_one = of_queue._replace(partition=one.partition)
                figures[of_one._replace(figure="lag")] = (one.lag or 0.0) if is_counted else math.nan
                figures[of_one._replace(figure="retries")] = _known(one.retrying)
        self.history.add(sample.at.timestamp(), figures)

    def run(self, stop: threading.Event) -> None:
        """Take them until `stop` is set."""
        while not stop.wait(self.interval):
            try:
                self.take()
            except Exception as error:  # noqa: BLE001 # or pages would show an old sample for ever, without a word
                self._failure = f"{type(error).__name__}: {error}"
                self._log.error("sample_failed", exc_info=error)
            else:
                self._failure = None
        self._watcher.close()

    def why_late(self) -> str | None:
        """Why there is no newer sample than `latest`; None when that is new."""
        if self._failure is not None:
            return self._failure
        age = time.time() - self.latest.at.timestamp()
        if age <= max(_LATE * self.interval, _LATEST):
            return None
        return f"the next sample has not come for {age:.0f} s: a database does not answer, or is slow"


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)


# --- who is logged in ---------------------------------------------------------------------------------

SHORTEST_TOKEN: Final = 16
"""Characters; with fewer, a program could try them all."""
_LIFETIME: Final = 12 * 3600.0
_MOST_SESSIONS: Final = 64


@dataclass(slots=True)
class Session:
    """A user who has given the token."""

    csrf: str
    """What each form of theirs carries."""
    expires: float
    notice: str | None = None
    """What became of the last action, for the next page."""


@dataclass(slots=True)
class Sessions:
    """Who has given the token. They end with the process."""

    token: str
    _by_id: dict[str, Session] = field(default_factory=dict)

    def begin(self, given: str) -> str | None:
        """The id of a new session; None when that is not the token."""
        if not _are_equal(given, self.token):
            return None
        while len(self._by_id) >= _MOST_SESSIONS:
            del self._by_id[next(iter(self._by_id))]
        name = secrets.token_urlsafe(32)
        self._by_id[name] = Session(secrets.token_urlsafe(32), clock.now() + _LIFETIME)
        return name

    def find(self, name: str | None) -> Session | None:
        """The session of that id, if it has not run out."""
        session = self._by_id.get(name or "")
        return session if session is not None and clock.now() < session.expires else None

    def end(self, name: str | None) -> None:
        """Forget it."""
        self._by_id.pop(name or "", None)


def checked_token(text: str, where: str) -> str:
    """The token that a file or variable holds; `UsageError` when it could be guessed, or be mistyped."""
    token = text.strip()
    if len(token) < SHORTEST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise UsageError(
            f"{where} holds no token: that is at least {SHORTEST_TOKEN} ASCII characters without blanks, "
            "such as `openssl rand -hex 32` prints"
        )
    return token


def is_genuine(session: Session, given: str) -> bool:
    """Whether a form came from a page that we made for this session."""
    return _are_equal(given, session.csrf)


def is_from_here(request: Request) -> bool:
    """Whether no other site's page has sent this, as far as the browser says."""
    origin = request.headers.get("origin")
    if origin is not None:
        # The scheme is left out of it: a proxy before us may take TLS off.
        return urlsplit(origin).netloc.lower() == request.headers["host"].lower()
    return request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _are_equal(given: str, ours: str) -> bool:
    """Takes as long whatever is given: compared are digests of one length."""
    one, other = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, ours))
    return hmac.compare_digest(one, other)
