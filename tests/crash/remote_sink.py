"""A sink at the other end of a network: a server that collects lines, and the function that sends them.

The server compares nothing. It writes what arrives in the order of arrival, and then answers.
"""

from __future__ import annotations

import os
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytube.embedded.process import HOST
from pytube.errors import SinkTimeout, SinkUnavailable
from pytube.model import Batch
from pytube.sinks.jsonl import encode

ADDRESS = "COLLECTOR"
CLIENT = "CLIENT_ID"
_LIMIT = 1.5
"""Seconds for one step of a write; less than the request timeout of the tests."""

_SIZE = struct.Struct("!I")
_WHERE_THE_TIME_BELONGS = b"\0"
_DONE = b"+"


def send(batch: Batch) -> None:
    """Send the batch over a connection of its own, and wait until it is written."""
    host, _, port = os.environ[ADDRESS].partition(":")
    block = _WHERE_THE_TIME_BELONGS.join(encode(batch, os.environ[CLIENT]))
    try:
        connection = socket.create_connection((host, int(port)), _LIMIT)
    except OSError as error:
        raise SinkUnavailable(f"the collector can't be reached: {error}") from error
    with connection:
        if batch.has_lapsed():
            raise SinkUnavailable("not sent: the right to send had lapsed")
        try:
            connection.sendall(_SIZE.pack(len(block)) + block)
            answer = connection.recv(1)
        except OSError as error:
            raise SinkTimeout(f"the collector did not answer: {error}") from error
        if answer != _DONE:
            raise SinkTimeout("the collector hung up")


class Collector(socketserver.ThreadingTCPServer):
    """Appends the lines that it is sent to a file."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, path: Path) -> None:
        super().__init__((HOST, 0), _Handler)
        self._path = path
        self._writing = threading.Lock()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def write(self, block: bytes) -> None:
        """Append a block that is there as a whole."""
        with self._writing, self._path.open("ab") as file:
            file.write(block.replace(_WHERE_THE_TIME_BELONGS, b"%.6f" % time.time()))


class _Handler(socketserver.BaseRequestHandler):
    server: Collector

    def handle(self) -> None:
        """One batch; what does not come whole is dropped."""
        try:
            (size,) = _SIZE.unpack(self._read(_SIZE.size))
            self.server.write(self._read(size))
            self.request.sendall(_DONE)
        except (OSError, EOFError):
            return

    def _read(self, size: int) -> bytes:
        block = bytearray()
        while len(block) < size:
            chunk = self.request.recv(size - len(block))
            if not chunk:
                raise EOFError
            block += chunk
        return bytes(block)


@contextmanager
def collecting(path: Path) -> Iterator[Collector]:
    """A collector that runs within."""
    with Collector(path) as collector:
        thread = threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()
