"""The proxy that stands for the network in tests does what each of its modes says."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytube.embedded.process import HOST
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import wait_until

QUIET = 0.15
"""Seconds in which an answer would have come."""


class Echo(socketserver.ThreadingTCPServer):
    """Sends back what it gets, and keeps it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), Handler)
        self.heard = b""
        self.ends = 0
        """Connections whose client has ended."""


class Handler(socketserver.BaseRequestHandler):
    server: Echo

    def handle(self) -> None:
        try:
            while chunk := self.request.recv(65536):
                self.server.heard += chunk
                self.request.sendall(chunk)
        except ConnectionResetError:
            pass
        self.server.ends += 1


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.server_address[1]) as proxy:
        yield proxy


@contextmanager
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, proxy.port), timeout=5) as connection:
        yield connection


def ask(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    answer = b""
    while len(answer) < len(request):
        answer += connection.recv(65536)
    return answer


def is_silent(connection: socket.socket) -> bool:
    """Whether nothing comes, not even an end."""
    connection.settimeout(QUIET)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(5)
    return False


def test_pass(proxy: Proxy, echo: Echo) -> None:
    big = bytes(range(256)) * 4096
    with client(proxy) as first, client(proxy) as second:
        assert ask(first, b"hello") == b"hello"
        second.sendall(b"x")
        assert ask(first, b"again") == b"again"
        assert proxy.connections == 2
        sender = threading.Thread(target=first.sendall, args=(big,))
        sender.start()
        answer = b""
        while len(answer) < len(big):
            answer += first.recv(65536)
        sender.join()
        assert answer == big
    wait_until(lambda: proxy.connections == 0 and echo.ends == 2)
    assert proxy.accepted == 2
    assert proxy.swallowed == 0


def test_an_end_of_one_direction_passes(proxy: Proxy) -> None:
    with client(proxy) as connection:
        connection.sendall(b"last")
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(100):
            answer += chunk
        assert answer == b"last"


def test_cut_resets_refuses_and_comes_back(proxy: Proxy, echo: Echo) -> None:
    with client(proxy) as connection:
        ask(connection, b"a")
        proxy.switch(Mode.CUT)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        wait_until(lambda: echo.ends == 1)
        with pytest.raises(ConnectionRefusedError), client(proxy):
            pass
    proxy.switch(Mode.PASS)
    with client(proxy) as connection:
        assert ask(connection, b"b") == b"b"


def test_half_open_swallows_and_tells_nobody(proxy: Proxy, echo: Echo) -> None:
    with client(proxy) as old, client(proxy) as idle:
        ask(old, b"a")
        ask(idle, b"b")
        proxy.switch(Mode.HALF_OPEN)
        with client(proxy) as new:
            for connection in (old, new):
                connection.sendall(b"lost")
                assert is_silent(connection)
            assert echo.heard == b"ab"
            assert proxy.swallowed == 8
            proxy.switch(Mode.PASS)
            for connection in (old, new):
                with pytest.raises(ConnectionResetError):
                    connection.recv(1)
        # who sent nothing has lost nothing
        assert ask(idle, b"c") == b"c"


def test_half_open_hides_the_end_of_the_client(proxy: Proxy, echo: Echo) -> None:
    with client(proxy) as connection:
        ask(connection, b"a")
        proxy.switch(Mode.HALF_OPEN)
        connection.sendall(b"lost")
    wait_until(lambda: proxy.swallowed == 4)
    with client(proxy) as connection:
        assert is_silent(connection)
    assert echo.ends == 0
    proxy.switch(Mode.PASS)
    wait_until(lambda: echo.ends == 1)


def test_answers_lost(proxy: Proxy, echo: Echo) -> None:
    with client(proxy) as old:
        ask(old, b"a")
        proxy.switch(Mode.ANSWERS_LOST)
        old.sendall(b"b")
        with client(proxy) as new:
            new.sendall(b"c")
            wait_until(lambda: sorted(echo.heard) == sorted(b"abc"))
            assert is_silent(old)
            assert is_silent(new)


def test_requests_lost(proxy: Proxy, echo: Echo) -> None:
    with client(proxy) as connection:
        ask(connection, b"a")
        proxy.switch(Mode.REQUESTS_LOST)
        connection.sendall(b"b")
        assert is_silent(connection)
        assert echo.heard == b"a"


def test_slow_delays_each_chunk_once_however_many_are_under_way(proxy: Proxy) -> None:
    with client(proxy) as connection:
        ask(connection, b"a")
        proxy.switch(Mode.SLOW, delay=0.5)
        began = time.monotonic()
        for _ in range(10):
            connection.sendall(b"x")
        assert len(ask(connection, b"y")) >= 1
        assert time.monotonic() - began >= 1.0
        answer = b""
        while len(answer) < 10:
            answer += connection.recv(100)
        assert time.monotonic() - began < 5.5, "one after the other"


def test_slow_passes_so_many_bytes_a_second(proxy: Proxy) -> None:
    with client(proxy) as connection:
        proxy.switch(Mode.SLOW, rate=20_000)
        began = time.monotonic()
        ask(connection, b"x" * 4000)
        assert time.monotonic() - began >= 0.38


def test_a_server_that_is_away(echo: Echo) -> None:
    with Proxy(echo.server_address[1]) as proxy:
        echo.server_close()
        with client(proxy) as connection, pytest.raises(ConnectionResetError):
            connection.recv(1)
        wait_until(lambda: proxy.connections == 0)
