"""The application: which address answers what, and what errors become."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio.to_thread
import psycopg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pytube.db.errors import describe
from pytube.errors import DatabaseUnavailable, PytubeError, UnknownTube, UsageError
from pytube.logs import Logger
from pytube.web import actions, pages
from pytube.web.html import address, tag
from pytube.web.parked import parked
from pytube.web.site import Sessions, Site, here, is_from_here, message, page

_Make = Callable[[Site, Request], Response | Awaitable[Response]]
_STYLE = Path(__file__).with_name("style.css")
_OPEN = frozenset({"/login", "/style.css"})
"""The paths that are served without the token."""
_AT_ONCE = 8
"""Requests that work on a database; others wait, so that no reader takes the connections of workers."""


def application(site: Site, names: Sequence[str], log: Logger) -> ASGIApp:
    """The pages of a site that answers to these names."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _AT_ONCE
        stop = threading.Event()
        thread = threading.Thread(target=site.sampler.run, args=[stop], name="sampler", daemon=True)
        thread.start()
        yield
        stop.set()

    def route(method: str, path: str, make: _Make) -> Route:
        async def answer(request: Request) -> Response:
            try:
                # In a thread, where it may wait; an async one only begins there.
                made = await run_in_threadpool(make, site, request)
                return made if isinstance(made, Response) else await made
            except Exception as error:  # noqa: BLE001 # whatever it is, people get a sentence
                return _failed(request, error, log)

        return Route(path, answer, methods=[method])

    inner = Starlette(
        routes=[route(*one) for one in _ROUTES],
        exception_handlers={HTTPException: _missing},
        lifespan=lifespan,
    )
    return _Guard(inner, names, site.sessions)


def _style(_: Site, __: Request) -> Response:
    return Response(_STYLE.read_bytes(), media_type="text/css", headers={"cache-control": "no-cache"})


_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # without any, a browser sends forms with the origin "null"
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_MISDIRECTED: Final = PlainTextResponse(
    "That is not a name of this server. `pytube web --name NAME` makes it one.\n",
    HTTPStatus.MISDIRECTED_REQUEST,
)


class _Guard:
    """Before the application: refuses other names than allowed, and where there is a token, requests without
    it; gives every answer its headers.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str], sessions: Sessions | None) -> None:
        """`names` are what Host headers may say, without the port."""
        self._app = app
        self._names = frozenset(name.lower() for name in names)
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [*message.get("headers", ()), *_HEADERS]
                if not any(name == b"cache-control" for name, _ in kept):
                    kept.append((b"cache-control", b"no-store"))
                message = {**message, "headers": kept}
            await send(message)

        app = self._admitted(scope) if self._is_ours(scope) else _MISDIRECTED
        await app(scope, receive, send_with_headers)

    def _admitted(self, scope: Scope) -> ASGIApp:
        """The application, or for strangers the way to the login."""
        if self._sessions is None:
            return self._app
        request = Request(scope)
        session = self._sessions.find(request.cookies.get(_cookie(request)))
        scope.setdefault("state", {})["session"] = session
        if session is not None or scope["path"] in _OPEN:
            return self._app
        back = here(request) if request.method == "GET" else None
        return RedirectResponse(address("/login", next=back), HTTPStatus.SEE_OTHER)

    def _is_ours(self, scope: Scope) -> bool:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return False
        try:
            given = urlsplit(f"//{hosts[0]}")
            name, _ = given.hostname, given.port
        except ValueError:
            return False
        # The addresses of requests are made of this header: with a path in it, each may be that of the login.
        is_only_a_name = given.netloc == hosts[0] and "@" not in hosts[0]
        return is_only_a_name and name is not None and name.rstrip(".") in self._names


def _cookie(request: Request) -> str:
    """The name of the cookie. Browsers give one to all ports of a host, so each server has its own."""
    return f"pytube_web_{request.url.port or 0}"


def _login_page(site: Site, request: Request, said: str | None = None) -> Response:
    if site.sessions is None:
        return message(request, "Read-only", "This server has no token.", HTTPStatus.NOT_FOUND)
    form = tag(
        "form",
        tag(
            "label",
            "Token",
            tag("input", name="token", type="password", required=True, autocomplete="current-password"),
        ),
        tag("button", "Log in"),
        method="post",
        action=address("/login", next=request.query_params.get("next")),
    )
    content = [tag("p", said, role="alert", class_="notice") if said else None, form]
    status = HTTPStatus.FORBIDDEN if said else HTTPStatus.OK
    return page(request, "Log in", content, status=status)


async def _login(site: Site, request: Request) -> Response:
    form = await actions.form_of(request)
    if not is_from_here(request):
        raise actions.Refused("this form was not sent from a page of this server")
    name = None if site.sessions is None else site.sessions.begin(form.get("token", ""))
    if name is None:
        return _login_page(site, request, "That is not the token.")
    response = RedirectResponse(_local(request.query_params.get("next")), HTTPStatus.SEE_OTHER)
    # Lax, so that a link in an alert leads to its page; the form's secret keeps others from acting.
    # Behind a proxy that does TLS only the browser knows of it.
    secure = request.headers.get("origin", "").startswith("https://")
    response.set_cookie(_cookie(request), name, httponly=True, samesite="lax", secure=secure)
    return response


def _local(target: str | None) -> str:
    """The page to go to after the login: one of this site, whatever a link asks for."""
    if target is None or not target.isprintable() or not target.startswith("/"):
        return "/"
    # Browsers take two slashes, and backslashes as well, for the beginning of another host's name.
    return "/" if target.startswith("//") or "\\" in target else target


async def _logout(site: Site, request: Request) -> Response:
    form = await actions.form_of(request)
    session = actions.acting(request)
    actions.checked(request, session, form)
    if site.sessions is not None:
        site.sessions.end(request.cookies.get(_cookie(request)))
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    response.delete_cookie(_cookie(request))
    return response


_ROUTES: Final[Sequence[tuple[str, str, _Make]]] = (
    ("GET", "/", pages.overview),
    ("GET", "/tube", pages.tube),
    ("GET", "/partition", pages.partition),
    ("GET", "/parked", parked),
    ("GET", "/ask", actions.ask),
    ("GET", "/style.css", _style),
    ("GET", "/login", _login_page),
    ("POST", "/act", actions.act),
    ("POST", "/login", _login),
    ("POST", "/logout", _logout),
)

_STATUSES: Final = {
    actions.Refused: HTTPStatus.FORBIDDEN,
    UnknownTube: HTTPStatus.NOT_FOUND,
    UsageError: HTTPStatus.BAD_REQUEST,
    DatabaseUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Of errors, the more special ones first; others are internal ones."""


def _failed(request: Request, error: Exception, log: Logger) -> Response:
    """One sentence on a page; internal errors stand in the log, too."""
    internal = HTTPStatus.INTERNAL_SERVER_ERROR
    status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), internal)
    if isinstance(error, PytubeError):
        said = str(error)
    elif isinstance(error, psycopg.Error):
        said = f"Postgres refused: {describe(error)}"
    else:
        log.error("page_failed", exc_info=error, path=request.url.path)
        said = "A fault of pytube; its log has more."
    return message(request, status.phrase, said, status)


def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    return message(request, status.phrase, f"There is no such page: {request.url.path}", status)
