"""The thread that is a member never waits within librdkafka: not by the wall clock, and not for a broker."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from pytube.election import neli as module
from pytube.election.base import Ended
from pytube.election.member import Member, NeliSettings
from pytube.election.neli import ClaimBoard, NeliClaim, NeliElection
from pytube.errors import Rebalancing
from pytube.kafka.clients import Clients
from pytube.logs import Logger
from tests.helpers.waiting import wait_until_async


class Client:
    """A consumer that hears nothing, and waits for ever where librdkafka may wait for long."""

    def __init__(self) -> None:
        self.polls = 0
        self.commits = 0
        self.given_back: list[int] = []
        self.is_closed = False
        self._never = threading.Event()

    def poll(self, timeout: float) -> None:
        self.polls += 1
        if timeout:
            self._never.wait()

    def close(self) -> None:
        self.is_closed = True

    def memberid(self) -> str:
        return "one"

    def subscribe(self, *_: Any, **__: Any) -> None: ...

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:  # noqa: ARG002
        self.commits += 1
        if not asynchronous:
            self._never.wait()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self.given_back += [one.partition for one in partitions]


class OneConsumer:
    """Gives out one consumer."""

    def __init__(self) -> None:
        self.reader = Client()

    def consumer(self, *_: Any) -> Client:
        return self.reader


SETTINGS = NeliSettings(bootstrap_servers="nowhere", topic="t", group="g", client_id="c", drain_limit=0.3)


def member_of(clients: OneConsumer, board: ClaimBoard) -> Member:
    return Member(SETTINGS, cast("Clients", clients), board, Logger("test"))


async def test_a_wall_clock_that_is_set_back_does_not_hold_it_up() -> None:
    clients = OneConsumer()
    member = member_of(clients, ClaimBoard(cast("Any", None), cast("Any", None)))
    member.start()
    await wait_until_async(lambda: clients.reader.polls > 3, what="it goes on")
    assert member.stop(5)
    assert clients.reader.is_closed


async def test_a_proof_that_is_asked_for_while_claims_are_handed_over_does_not_hold_them_up() -> None:
    """The coordinator may be away, and a commit that waits for it would keep all other partitions here."""
    clients, claims = OneConsumer(), list[NeliClaim]()
    answers: dict[int, Future[None]] = {}

    async def ask(slot: int) -> None:
        answers[slot] = member.ask(slot)
        await asyncio.wrap_future(answers[slot])

    board = ClaimBoard(ask, claims.append)
    board.serve({("t", 0): 0, ("t", 1): 1})
    board.assign([0, 1])
    member = member_of(clients, board)
    member.start()
    await wait_until_async(lambda: clients.reader.polls, what="it is a member")
    before = asyncio.create_task(claims[0].prove())
    await wait_until_async(lambda: clients.reader.commits, what="the commit is sent")
    revoking = threading.Thread(
        target=member._on_revoke, args=(clients.reader, [TopicPartition("t", 0)]), daemon=True
    )
    revoking.start()
    with pytest.raises(Rebalancing):
        await asyncio.wait_for(before, 20)
    await wait_until_async(lambda: claims[0].withdrawn is not None, what="the claim is withdrawn")
    with pytest.raises(Rebalancing):
        await asyncio.wait_for(claims[1].prove(), 20)
    assert claims[1].over_at is None, "it is asked again later"
    await wait_until_async(
        lambda: clients.reader.given_back == [0], what="the partition is given back", timeout=20
    )
    assert isinstance(claims[0].withdrawn, Ended), "its time was over"
    assert member.stop(5)


class NoTopic:
    """A message of librdkafka that says so."""

    def error(self) -> KafkaError:
        return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


async def test_a_leader_topic_that_was_deleted_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CARE", 0.001)
    monkeypatch.setattr(module, "_TOPIC_PAUSE", 0.0)
    election = NeliElection("t", lambda: {"t": 4}, SETTINGS)
    board = ClaimBoard(cast("Any", None), cast("Any", None))
    member = election._member = member_of(OneConsumer(), board)
    widths: list[int] = []

    async def widen(_: float) -> None:
        widths.append(election._width)
        election._width = 4

    monkeypatch.setattr(election, "_widen", widen)
    caring = asyncio.create_task(election._take_care(board))
    await wait_until_async(lambda: widths, what="the topic is made")
    monkeypatch.setattr(member, "_clients", election._clients)
    member._on_message(cast("Message", NoTopic()))
    await wait_until_async(lambda: len(widths) == 2, what="it is made again", timeout=20)
    assert widths == [0, 0]
    assert not member.misses_topic.is_set(), "and not again and again"
    caring.cancel()
