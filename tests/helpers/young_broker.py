"""A stand-in for a broker that has just started: it answers, and knows no broker yet, not even itself.

It speaks what a client asks first, ApiVersions and Metadata, and so much of it that librdkafka is content.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_API_VERSIONS, _METADATA = 18, 3
_SUPPORTED = ((_API_VERSIONS, 0, 0), (_METADATA, 0, 4))
_UNSUPPORTED_VERSION = 35


class YoungBroker:
    """Listens from the start; at first it names itself, since librdkafka waits for a controller."""

    def __init__(self) -> None:
        """Takes a free port of loopback."""
        self.knows_itself = True
        self.answers = 0
        """How often it has told what it knows."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._socket.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as incoming:
            while len(head := incoming.read(12)) == 12:
                size, key, version, number = struct.unpack(">ihhi", head)
                incoming.read(size - 8)
                body = _versions(version) if key == _API_VERSIONS else self._metadata(version)
                connection.sendall(struct.pack(">ii", len(body) + 4, number) + body)

    def _metadata(self, version: int) -> bytes:
        self.answers += 1
        brokers = struct.pack(">i", 0)
        if self.knows_itself:
            brokers = struct.pack(">ii", 1, 1) + _text("127.0.0.1") + struct.pack(">i", self._port)
            brokers += struct.pack(">h", -1) if version >= 1 else b""  # no rack
        throttled = struct.pack(">i", 0) if version >= 3 else b""
        cluster = _text("young") if version >= 2 else b""
        controller = struct.pack(">i", 1 if self.knows_itself else -1) if version >= 1 else b""
        return throttled + brokers + cluster + controller + struct.pack(">i", 0)  # no topics


def _versions(version: int) -> bytes:
    error = _UNSUPPORTED_VERSION if version > 0 else 0
    return struct.pack(">hi", error, len(_SUPPORTED)) + b"".join(
        struct.pack(">hhh", *one) for one in _SUPPORTED
    )


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
