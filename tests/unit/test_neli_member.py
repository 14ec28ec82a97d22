"""The thread that is a member never waits within librdkafka, which waits by the wall clock."""

from __future__ import annotations

import threading
from typing import Any, cast

from pytube.election.neli.claim import ClaimBoard
from pytube.election.neli.member import Member, NeliSettings
from pytube.kafka.clients import Clients
from pytube.logs import Logger
from tests.helpers.waiting import wait_until


class Client:
    """A consumer that hears nothing; it waits as librdkafka does once the clock is set back."""

    def __init__(self) -> None:
        self.polls = 0
        self.is_closed = False
        self._never = threading.Event()

    def poll(self, timeout: float) -> None:
        self.polls += 1
        if timeout:
            self._never.wait()

    def close(self) -> None:
        self.is_closed = True

    def subscribe(self, *_: Any, **__: Any) -> None: ...


class OneConsumer:
    """Gives out one consumer."""

    def __init__(self) -> None:
        self.reader = Client()

    def consumer(self, *_: Any) -> Client:
        return self.reader


def test_a_wall_clock_that_is_set_back_does_not_hold_it_up() -> None:
    log = Logger("test")
    settings = NeliSettings(bootstrap_servers="nowhere", topic="t", group="g", client_id="c")
    clients = OneConsumer()
    board = ClaimBoard(cast("Any", None), cast("Any", None), 1.0)
    member = Member(settings, cast("Clients", clients), board, log)
    member.start()
    wait_until(lambda: clients.reader.polls > 3, what="it goes on")
    assert member.stop(5)
    assert clients.reader.is_closed
