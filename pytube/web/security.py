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
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from pytube import clock
from pytube.errors import UsageError

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
