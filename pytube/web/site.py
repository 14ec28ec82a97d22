"""What all pages have: the databases, the samples of them, who is logged in, and the frame of a page.

A user who can open a connection to a port of this machine is not yet to be trusted: other users of it can,
and so can a page of any site that the operator's browser shows. Against such pages: the name in the Host
header must be allowed (or a site that lets its own name lead to 127.0.0.1 could read everything); a request
that changes anything must be a POST with a secret of the session; and no page runs scripts or can be framed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
from starlette.requests import Request
from starlette.responses import Response

import pytube
from pytube import clock
from pytube.config import Config
from pytube.db.database import Database
from pytube.errors import UsageError
from pytube.web.html import Html, address, clock_time, document, link, tag
from pytube.web.sampler import Sampler

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
