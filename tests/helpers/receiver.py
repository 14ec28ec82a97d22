"""A receiver of webhooks that misbehaves on demand: an HTTP server on loopback, in threads."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from pytube.model import Ok, Stale, Token
from pytube.testing import MemoryStore, document
from tests.helpers.certificates import Certificate


class How(StrEnum):
    """What the receiver does with a request."""

    OK = "ok"
    """Takes it, and answers 204."""
    ITEMS = "items"
    """Takes it, and answers each document: what it has no number or text for is rejected."""
    MUTE = "mute"
    """Takes it, and does not answer until `go`."""
    CUT = "cut"
    """Takes it, and closes the connection in the middle of its answer."""
    BIG = "big"
    """Takes it, and answers more than anybody wants to read."""
    STATUS = "status"
    """Takes nothing, and answers `status` with `headers`."""
    TWICE = "twice"
    """Takes it, and answers 204 twice."""
    BODY = "body"
    """Takes it, and answers 200 with `body`."""


class Request(NamedTuple):
    """One request, as it came."""

    headers: dict[str, str]
    body: bytes


class Receiver:
    """Listens on a free port of loopback until it is closed."""

    def __init__(self, *, compares: bool = False, tls: Certificate | None = None) -> None:
        self.how = How.OK
        self.status = 500
        self.headers: dict[str, str] = {}
        self.body = b""
        self.compares = compares
        self.patience: float = float("inf")
        """Requests that it takes; to those after them it answers `status`."""
        self.store = MemoryStore()
        self.requests: list[Request] = []
        self.connections = 0
        self.answered = 0
        """Answers that were sent as a whole."""
        self.go = threading.Event()
        """While it is not set, nothing is taken or answered."""
        self.go.set()
        self._mutex = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(tls.certificate, tls.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                receiver.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                request = Request({name.lower(): value for name, value in self.headers.items()}, body)
                receiver.requests.append(request)
                receiver.go.wait()
                self.close_connection = not receiver._answer(request, self._send)

            def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "content-length" not in headers and status != 204:
                    self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                receiver.answered += 1

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        return Handler

    def _answer(self, request: Request, send: Callable[[int, dict[str, str], bytes], None]) -> bool:
        """Answer one request; whether the connection stays."""
        if self.how is How.STATUS or len(self.requests) > self.patience:
            send(self.status, self.headers, b"")
            return True
        results = json.dumps({"results": self._take(request)}).encode()
        if self.how is How.MUTE:
            self.go.clear()
            self.go.wait()
            return False
        if self.how is How.CUT:
            send(200, {"content-length": str(len(results))}, results[: len(results) // 2])
            return False
        if self.how is How.BIG:
            send(200, {"content-length": str(1 << 40)}, b"x" * 3_000_000)
            return False
        if self.how is How.TWICE:
            send(204, {}, b"")
        if self.how is How.BODY:
            send(200, self.headers, self.body)
        elif self.how is How.ITEMS:
            send(200, {"content-type": "application/json"}, results)
        else:
            send(204, {}, b"")
        return True

    def _take(self, request: Request) -> list[dict[str, Any]]:
        if request.headers["content-type"] == "application/json":
            items = json.loads(request.body)
        else:
            items = [json.loads(line) for line in request.body.splitlines()]
        with self._mutex:
            return [self._write(item) for item in items]

    def _write(self, item: dict[str, Any]) -> dict[str, Any]:
        if item["doc"] == "bad":
            return {"status": "reject", "reason": f"it is {item['doc']}"}
        key = item["shard"], item["id"]
        value = None if item["op"] == "delete" else item["doc"]
        token = Token.parse(item["token"])
        assert token == (item["epoch"], item["counter"])
        match self.store.write(document(key, value, token=token, seq=item["seq"]), compare=self.compares):
            case Ok():
                return {"status": "ok"}
            case Stale(newer=newer):
                return {"status": "stale", "token": str(newer)}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that went away is no error of the tests."""
