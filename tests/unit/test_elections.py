"""The elections of a host are joined and left as its queues come and go."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest

from pytube.config import Config, KafkaConfig, PostgresConfig
from pytube.election import Claim
from pytube.election.lease import Room
from pytube.errors import BrokerUnavailable
from pytube.pipeline.limits import TokenBucket
from pytube.worker.database import Database
from pytube.worker.elections import ALL, Elections
from pytube.worker.metrics import Tracing
from pytube.worker.queues import Queue
from pytube.worker.services import Process, Services
from tests.helpers.waiting import wait_until_async
from tests.unit.fakes import FakeClaim


class FakeElection:
    """Grants one claim; two processes share its queue."""

    def __init__(self, name: str, claims: asyncio.Queue[Claim]) -> None:
        self.name = name
        self.claims = claims
        self.is_down = False
        self.stopped = asyncio.Event()

    async def start(self) -> None:
        if self.is_down:
            raise BrokerUnavailable("the fake broker is down")
        self.claims.put_nowait(FakeClaim(self.name))

    async def stop(self, why: object = None) -> None:  # noqa: ARG002 # the contract's
        self.stopped.set()
        await asyncio.sleep(0)

    def processes(self, tube: str) -> int | None:
        assert tube == self.name
        return 2


class Scene:
    """The elections of two queues."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
        self.made: list[FakeElection] = []
        self._claims: list[str] = []
        monkeypatch.setattr(Elections, "_make", lambda of, name: self._make(name, of.claims))
        queues = dict.fromkeys(("t", "u"), cast("Queue", None))
        database = Database(config.postgres, [], receive_deadline=1.0, emit=lambda _: None)
        process = Process(lambda _: None, Tracing(), Room(None), TokenBucket(2.0), [])
        self.services = process.services
        self.elections = Elections(
            config,
            queues,
            database,
            process,
            set(),
        )

    @property
    def claims(self) -> list[str]:
        """The queues of the claims that may begin, so far."""
        while not self.elections.claims.empty():
            self._claims.append(self.elections.claims.get_nowait().tube)
        return self._claims

    def _make(self, name: str, claims: asyncio.Queue[Claim]) -> FakeElection:
        self.made.append(FakeElection(name, claims))
        return self.made[-1]


def configured(kafka: KafkaConfig | None) -> Config:
    return Config(postgres=PostgresConfig(dsn="host=127.0.0.1"), kafka=kafka)  # type: ignore[arg-type]


KAFKA = KafkaConfig(bootstrap_servers="127.0.0.1:1")
SHARED = KafkaConfig(bootstrap_servers="127.0.0.1:1", shared_partitions=4)


@pytest.mark.parametrize(
    ("kafka", "names"),
    [
        (None, [ALL]),
        (KAFKA, ["t", "u"]),
        (SHARED, [ALL]),
    ],
)
async def test_queues_share_an_election_or_have_one_each(
    monkeypatch: pytest.MonkeyPatch, kafka: KafkaConfig | None, names: list[str]
) -> None:
    scene = Scene(monkeypatch, configured(kafka))
    assert [one.name for one in scene.made] == names, "they are made at once, so that faults end the start"
    assert scene.elections.are_shared is (names == [ALL])


async def test_an_election_is_left_and_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, configured(KAFKA))
    await scene.elections.join("t")
    await wait_until_async(lambda: scene.claims == ["t"], what="its claim is passed on")
    assert scene.elections.joined == {"t"}
    await scene.elections.leave("t")
    assert scene.elections.joined == set()
    assert scene.made[0].stopped.is_set()
    assert not scene.services.is_broken, "what followed its claims has ended in order"
    await scene.elections.join("t")
    await wait_until_async(lambda: scene.claims == ["t", "t"], what="a new one grants claims")
    await scene.elections.stop()
    assert all(one.stopped.is_set() for one in scene.made)
    await scene.services.close()


async def test_an_election_whose_broker_is_down_can_be_joined_later(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, configured(KAFKA))
    scene.made[0].is_down = True
    with pytest.raises(BrokerUnavailable):
        await scene.elections.join("t")
    assert scene.elections.joined == set()
    scene.made[0].is_down = False
    await scene.elections.join("t")
    assert len(scene.made) == 2, "it is the one that was made first"
    await scene.elections.stop()
    await scene.services.close()


async def test_a_take_over_of_many_partitions_is_gradual(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second's worth at once, then one by one; a claim that is over is not waited for."""
    elections = Scene(monkeypatch, configured(None)).elections
    began = time.monotonic()
    for _ in range(3):
        await elections._wait_for_turn(FakeClaim())
    assert time.monotonic() - began >= 0.49
    over = FakeClaim()
    over.end_now()
    await asyncio.wait_for(elections._wait_for_turn(over), 0.4)


async def test_a_claim_that_is_withdrawn_before_its_turn_begins_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elections = Scene(monkeypatch, configured(None)).elections
    first, second = FakeClaim("t"), FakeClaim("u")
    for claim in (first, second):
        elections.claims.put_nowait(claim)
    first.revoke()
    assert first.is_handed_over, "nobody waits until it is its turn"
    assert await elections.next_claim() is second
    second.revoke()
    assert not second.is_handed_over, "a term may have begun with it"


async def test_a_claim_that_is_withdrawn_on_its_way_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    elections = Scene(monkeypatch, configured(None)).elections
    first, second = FakeClaim("t"), FakeClaim("u")
    first.revoke()  # by the thread that polls, say
    assert first.over_at is None
    for claim in (first, second):
        elections.claims.put_nowait(claim)
    assert first.is_handed_over
    assert await elections.next_claim() is second


async def test_who_shares_a_queue_is_known_while_its_election_is_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, configured(KAFKA))
    assert scene.elections.processes("t") == 1, "the process takes no part yet"
    for name in ("t", "u"):
        await scene.elections.join(name)
    assert scene.elections.processes("t") == 2
    await scene.elections.leave("t")  # it was dropped
    assert scene.elections.processes("t") == 1
    assert scene.elections.processes("u") == 2
    await scene.elections.stop()
    await scene.services.close()


@pytest.mark.parametrize(("kafka", "leaves_all"), [(None, False), (KAFKA, False), (SHARED, True)])
async def test_who_leaves_one_group_for_all_queues_leaves_all(
    monkeypatch: pytest.MonkeyPatch, kafka: KafkaConfig | None, leaves_all: bool
) -> None:
    assert Scene(monkeypatch, configured(kafka)).elections.leaves_all is leaves_all


async def test_a_service_that_ends_is_a_fault_unless_it_may() -> None:
    services = Services()
    services.add(None, asyncio.sleep(0), may_end=True)
    await asyncio.sleep(0.001)
    assert not services.is_broken
    services.add(None, asyncio.sleep(0))
    await services.wait()
    assert services.is_broken


async def test_the_error_of_a_service_is_raised_to_who_waits() -> None:
    services = Services()

    async def fail() -> None:
        raise ValueError("a fault of ours")

    services.add(None, fail(), may_end=True)
    with pytest.raises(ValueError, match="a fault of ours"):
        await services.wait()


async def test_who_waits_for_services_goes_on_when_they_are_closed() -> None:
    services = Services()
    services.add(None, asyncio.sleep(1000))
    waiting = asyncio.create_task(services.wait())
    await services.close()
    await waiting
    assert not services.is_broken


async def test_the_services_of_one_owner_end_without_those_of_others() -> None:
    services = Services()
    ours, theirs = services.add("us", asyncio.sleep(1000)), services.add("them", asyncio.sleep(1000))
    await services.end_those_of("us")
    assert ours.cancelled()
    assert not theirs.done()
    assert not services.is_broken, "nothing has ended by itself"
    await services.close()
    assert theirs.cancelled()
