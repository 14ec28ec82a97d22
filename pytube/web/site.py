"""What all pages have: the databases, the samples of them, who is logged in, and the frame of a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

import psycopg
from starlette.requests import Request
from starlette.responses import Response

import pytube
from pytube.config import Config
from pytube.db.database import Database
from pytube.errors import UsageError
from pytube.web.html import Html, address, clock_time, document, link, tag
from pytube.web.sampler import Sampler
from pytube.web.security import Session, Sessions

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
