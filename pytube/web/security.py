"""Who may see pages, and who may act: names, sessions, and headers.

A user who can open a connection to a port of this machine is not yet to be trusted: other users of it can,
and so can a page of any site that the operator's browser shows. Against such pages: the name in the Host
header must be allowed (or a site that lets its own name lead to 127.0.0.1 could read everything); a request
that changes anything must be a POST with a secret of the session; and no page runs scripts or can be framed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pytube import clock
from pytube.errors import UsageError

SHORTEST_TOKEN: Final = 16
"""Characters; with fewer, a program could try them all."""
_LIFETIME: Final = 12 * 3600.0
_MOST_SESSIONS: Final = 64

_POLICY: Final = (
    b"default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # without any, a browser sends forms with the origin "null"
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


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


class Guard:
    """Before the application: refuses other names than allowed, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        """`names` are what Host headers may say, without the port."""
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
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

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        app = self._app if self._is_ours(hosts) else _MISDIRECTED
        await app(scope, receive, send_with_headers)

    def _is_ours(self, hosts: Sequence[str]) -> bool:
        if len(hosts) != 1:
            return False
        try:
            name = urlsplit(f"//{hosts[0]}").hostname
        except ValueError:
            return False
        return name is not None and name.rstrip(".") in self._names


_MISDIRECTED: Final = PlainTextResponse(
    "That is not a name of this server. `pytube web --name NAME` makes it one.\n",
    HTTPStatus.MISDIRECTED_REQUEST,
)
