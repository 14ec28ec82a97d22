"""NELI against a real broker: hand-over, fencing of members that were away, restarts, topics."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pytube.config.names import leader_name
from pytube.election.neli import NeliClaim
from pytube.errors import BrokerUnavailable, ClaimLost, ConfigError
from tests.helpers.election import (
    Holder,
    HolderProcess,
    fresh_tube,
    holding,
    neli,
    until_shared,
)
from tests.helpers.logs import capture_logs
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.waiting import LIMIT, wait_until, wait_until_async

if TYPE_CHECKING:
    from pytube.embedded.kafka_real import RealKafka


SESSION = 30.0
"""The time-out of members that are not to lose anything: what is done before it was not waiting for it."""


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    """Ends processes at the end of the test."""
    with ExitStack() as stack:
        yield stack


def spawn(processes: ExitStack, kafka: RealKafka, tube: str, **settings: Any) -> HolderProcess:
    process = HolderProcess(kafka.bootstrap, tube, **settings)
    processes.callback(process.kill)
    return process


def width(kafka: RealKafka, topic: str) -> int:
    found = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).topics.get(topic)
    return len(found.partitions) if found is not None else 0


async def test_three_members_share_and_move_claims(kafka_real: RealKafka) -> None:
    tube = fresh_tube()
    elections = [neli(kafka_real.bootstrap, tube, partitions=6, session_timeout=SESSION) for _ in range(3)]
    async with holding(*elections) as holders:
        await until_shared(holders, 6, each=2)
        kept = {number: holders[0].holds[number] for number in holders[0].partitions}
        await holders[2].stop()
        stopped = time.monotonic()
        await until_shared(holders[:2], 6, each=3)
        assert time.monotonic() - stopped < SESSION, "a hand-over on leaving waits for no time-out"
        assert all(holders[0].holds[number] is claim for number, claim in kept.items()), "kept claims stay"
        assert not any(holder.lost for holder in holders)


async def test_nobody_gets_a_claim_before_it_is_handed_over(kafka_real: RealKafka) -> None:
    tube = fresh_tube()
    async with holding(neli(kafka_real.bootstrap, tube, session_timeout=SESSION)) as (first,):
        await until_shared([first], 4)
        first.keep.clear()
        async with holding(neli(kafka_real.bootstrap, tube, session_timeout=SESSION)) as (second,):
            revoked: set[int] = set()

            def both_are_revoked() -> bool:  # one after the other, by the thread that polls
                revoked.update(number for number, claim in first.holds.items() if claim.withdrawn is not None)
                return len(revoked) == 2

            await wait_until_async(both_are_revoked, what="a revoke")
            for number in first.partitions - revoked:  # the thread that polls is held up all the while
                with suppress(BrokerUnavailable):  # while the group rebalances it confirms nobody
                    await first.holds[number].prove()
            assert not second.holds
            assert first.partitions == {0, 1, 2, 3}
            handed_over = time.monotonic()
            first.keep.set()
            await wait_until_async(lambda: second.partitions == revoked, what="the claims move")
            assert time.monotonic() - handed_over < SESSION
            assert not first.lost


async def test_a_drain_that_takes_too_long_loses_the_claim(kafka_real: RealKafka) -> None:
    tube = fresh_tube()
    async with holding(neli(kafka_real.bootstrap, tube, drain_limit=0.5)) as (first,):
        await until_shared([first], 4)
        first.keep.clear()
        async with holding(neli(kafka_real.bootstrap, tube)) as (second,):
            await wait_until_async(lambda: len(second.holds) == 2, what="the claims move all the same")
            first.keep.set()
            await wait_until_async(lambda: len(first.lost) == 2, what="the slow claims are lost")


async def test_a_broker_that_hangs_while_claims_are_handed_over_does_not_hold_them_up(
    kafka_real: RealKafka, kafka_proxy: Proxy
) -> None:
    """A kept claim is to be proved meanwhile, and the coordinator doesn't answer."""
    tube = fresh_tube()
    # librdkafka waits a minute for an answer, and longer for a coordinator that is away.
    times: dict[str, Any] = {"session_timeout": SESSION, "receive_deadline": SESSION, "drain_limit": 3.0}
    async with holding(neli(kafka_proxy.address, tube, **times)) as (first,):
        await until_shared([first], 4)
        first.keep.clear()
        async with holding(neli(kafka_real.bootstrap, tube, session_timeout=SESSION)):
            await wait_until_async(
                lambda: any(claim.withdrawn for claim in first.holds.values()), what="a revoke"
            )
            kafka_proxy.switch(Mode.HALF_OPEN)
            revoked, kept = (
                [claim for claim in neli_claims(first) if (claim.withdrawn is not None) == is_revoked]
                for is_revoked in (True, False)
            )
            with pytest.raises(BrokerUnavailable):
                await kept[0].prove()
            await wait_until_async(
                lambda: all(claim.over_at is not None for claim in revoked),
                what="they are handed over or lost",
                timeout=SESSION / 2,
            )
            assert all(claim.over_at is None for claim in kept)
            kafka_proxy.switch(Mode.PASS)
            first.keep.set()


async def test_processes_that_join_and_leave(kafka_real: RealKafka, processes: ExitStack) -> None:
    tube = fresh_tube()
    one = spawn(processes, kafka_real, tube, session_timeout=SESSION)
    wait_until(lambda: one.partitions == {0, 1, 2, 3}, what="the first has all")
    two = spawn(processes, kafka_real, tube, session_timeout=SESSION)
    wait_until(lambda: len(two.partitions) == 2 and len(one.partitions) == 2, what="they share")
    assert not one.partitions & two.partitions
    one.process.send_signal(signal.SIGTERM)
    wait_until(lambda: one.count("stopped") == 1, what="the first stops")
    stopped = one.said[-1]["at"]
    wait_until(lambda: two.partitions == {0, 1, 2, 3}, what="the second has all")
    assert time.monotonic() - stopped < SESSION
    assert one.process.wait(LIMIT) == 0
    strangers = [line for line in one.said if "does not know us" in line.get("reason", "")]
    assert not strangers, "a member in good standing is never taken for a stranger"


async def test_a_process_that_was_stopped_past_its_session_is_refused(
    kafka_real: RealKafka, processes: ExitStack
) -> None:
    tube = fresh_tube()
    one = spawn(processes, kafka_real, tube, session_timeout=3.0)
    wait_until(lambda: one.partitions == {0, 1, 2, 3}, what="the first has all")
    os.kill(one.process.pid, signal.SIGSTOP)
    two = spawn(processes, kafka_real, tube, session_timeout=3.0)
    wait_until(lambda: two.partitions == {0, 1, 2, 3}, what="the second takes all over")
    taken_over = time.monotonic()
    two_before = len(two.said)
    os.kill(one.process.pid, signal.SIGCONT)
    wait_until(lambda: len(one.partitions) == 2 and len(two.partitions) == 2, what="they share again")
    # Between the moment it went on and the moment it was given claims anew, nothing was proved.
    new_claims = next(
        index
        for index, line in reversed(list(enumerate(one.said)))
        if line["event"] == "holds" and len(line["partitions"]) < 2
    )
    wrong = [
        line for line in one.said[:new_claims] if line["event"] == "proved" and line["asked_at"] > taken_over
    ]
    assert not wrong
    strangers = [line for line in two.said[two_before:] if "does not know us" in line.get("reason", "")]
    assert not strangers


async def test_a_broker_that_is_away_ends_no_claim_and_proves_none(kafka_real: RealKafka) -> None:
    """A claim outlives the group's session; only a new term has to wait for the broker."""
    async with holding(neli(kafka_real.bootstrap, fresh_tube(), session_timeout=3.0)) as (holder,):
        await until_shared([holder], 4)
        claims = dict(holder.holds)
        with capture_logs() as logs:
            kafka_real.kill()
            try:
                await wait_until_async(
                    lambda: any(line["event"] == "group_lost" for line in logs), what="the group has lost it"
                )
                assert holder.holds == claims
                with pytest.raises((BrokerUnavailable, ClaimLost)):
                    await claims[0].prove()
            finally:
                await asyncio.to_thread(kafka_real.start)
            await wait_until_async(
                lambda: len(holder.holds) == 4 and all(c.is_assigned for c in neli_claims(holder)),
                what="the group gives them again",
            )
        for number, claim in holder.holds.items():
            await claim.prove()
            assert number == 0 or claim is claims[number], "who has not asked meanwhile has the same claim"
        assert [line["event"] for line in logs if line["log_level"] in ("warning", "error")] == []


def neli_claims(holder: Holder) -> list[NeliClaim]:
    return [claim for claim in holder.holds.values() if isinstance(claim, NeliClaim)]


async def test_who_was_lost_proves_nothing_once_another_member_has_the_partition(
    kafka_real: RealKafka, kafka_proxy: Proxy
) -> None:
    tube = fresh_tube()
    alone = neli(kafka_proxy.address, tube, session_timeout=3.0)
    async with holding(alone) as (cut_off,):
        await until_shared([cut_off], 4)
        claims = neli_claims(cut_off)
        kafka_proxy.switch(Mode.CUT)
        async with holding(neli(kafka_real.bootstrap, tube, session_timeout=3.0)) as (other,):
            await until_shared([other], 4)
            assert len(cut_off.holds) == 4, "it is the database that ends its terms"
            kafka_proxy.switch(Mode.PASS)
            await wait_until_async(
                lambda: sum(claim.is_assigned for claim in claims) == 2 and len(other.holds) == 2,
                what="they share, and it has its old claims of two",
            )
            for claim in claims:
                if not claim.is_assigned:
                    with pytest.raises(ClaimLost):
                        await claim.prove()


async def test_a_process_that_cannot_lead_leaves_and_comes_back(kafka_real: RealKafka) -> None:
    able, tube = True, fresh_tube()
    elections = (neli(kafka_real.bootstrap, tube, able=lambda: able), neli(kafka_real.bootstrap, tube))
    async with holding(*elections) as holders:
        await until_shared(list(holders), 4, each=2)
        with capture_logs() as logs:
            able = False
            await until_shared(list(holders[1:]), 4)
            assert not holders[0].partitions
            able = True
            await until_shared(list(holders), 4, each=2)
        assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["claims_paused"]


async def test_the_topic_is_made_and_widened_as_the_tube_grows(kafka_real: RealKafka) -> None:
    tube, partitions = fresh_tube(), 2
    async with holding(neli(kafka_real.bootstrap, tube, partitions=lambda: partitions)) as (holder,):
        await until_shared([holder], 2)
        assert width(kafka_real, leader_name("test", tube)) == 2
        partitions = 7
        await until_shared([holder], 7)
        kept = holder.holds[0]
        partitions = 3
        await until_shared([holder], 3)
        partitions = 5
        await until_shared([holder], 5)
        assert holder.holds[0] is kept, "partitions that stay keep their claims"
        assert width(kafka_real, leader_name("test", tube)) == 7


async def test_a_topic_that_is_deleted_is_made_again(kafka_real: RealKafka) -> None:
    tube = fresh_tube()
    topic = leader_name("test", tube)
    admin = AdminClient({"bootstrap.servers": kafka_real.bootstrap})
    async with holding(neli(kafka_real.bootstrap, tube)) as (holder,):
        await until_shared([holder], 4)
        with capture_logs() as logs:
            admin.delete_topics([topic])[topic].result(30)
            await wait_until_async(
                lambda: any(line["event"] == "leader_topic_changed" for line in logs), what="it is made"
            )
        await wait_until_async(lambda: width(kafka_real, topic) == 4, what="it is seen")
        await until_shared([holder], 4)
        assert not holder.lost


async def test_a_topic_that_is_too_narrow_is_widened_at_the_start(kafka_real: RealKafka) -> None:
    tube = fresh_tube()
    admin = AdminClient({"bootstrap.servers": kafka_real.bootstrap})
    admin.create_topics([NewTopic(leader_name("test", tube), 1, 1)])[leader_name("test", tube)].result(10)
    async with holding(neli(kafka_real.bootstrap, tube, partitions=3)) as (holder,):
        await until_shared([holder], 3)


@pytest.mark.parametrize("tube", ['a "b" c', "ünï/code", "dots.and_under", "x" * 240, "."])
async def test_tubes_with_any_name(kafka_real: RealKafka, tube: str) -> None:
    async with holding(neli(kafka_real.bootstrap, tube, partitions=1)) as (holder,):
        await until_shared([holder], 1)


async def test_a_claim_that_was_given_up_is_offered_again(kafka_real: RealKafka) -> None:
    election = neli(kafka_real.bootstrap, fresh_tube(), partitions=1)
    await election.start()
    try:
        first = await election.claims.get()
        first.handed_over()
        second = await election.claims.get()
        assert second is not first
        with pytest.raises(ClaimLost):
            await first.prove()
        await second.prove()
        second.handed_over()
    finally:
        await election.stop()


async def test_stop_does_not_wait_for_claims_that_no_worker_has_taken(kafka_real: RealKafka) -> None:
    drain_limit = 200.0  # seconds; librdkafka takes no more than 300 with what is added
    election = neli(kafka_real.bootstrap, fresh_tube(), partitions=1, drain_limit=drain_limit)
    await election.start()
    await wait_until_async(lambda: not election.claims.empty(), what="the group gives the partition")
    async with asyncio.timeout(drain_limit / 2):
        await election.stop()


async def test_no_broker_at_the_start(unused_tcp_port: int) -> None:
    election = neli(f"127.0.0.1:{unused_tcp_port}", fresh_tube(), start_timeout=1.0)
    with pytest.raises(BrokerUnavailable, match=rf"127.0.0.1:{unused_tcp_port}.*check"):
        await Holder(election).start()
    await election.stop()


@pytest.mark.parametrize(
    ("name", "value"),
    [("no.such.option", "hidden"), ("fetch.min.bytes", "hidden")],
)
async def test_options_that_librdkafka_refuses(name: str, value: str, unused_tcp_port: int) -> None:
    election = neli(f"127.0.0.1:{unused_tcp_port}", fresh_tube(), options={name: value})
    with pytest.raises(ConfigError, match=name) as caught:
        await election.start()
    assert value not in str(caught.value)
    await election.stop()


async def test_no_option_s_value_is_logged(unused_tcp_port: int) -> None:
    election = neli(
        f"127.0.0.1:{unused_tcp_port}",
        fresh_tube(),
        options={"sasl.mechanism": "hidden-one", "sasl.password": "hidden-two"},
        start_timeout=0.3,
    )
    with capture_logs() as logs, pytest.raises(BrokerUnavailable) as caught:
        await election.start()
    assert logs
    assert "hidden" not in f"{logs} {caught.value}"


def test_options_that_are_ours_to_set() -> None:
    with pytest.raises(ConfigError, match=r"group\.instance\.id"):
        neli("127.0.0.1:1", fresh_tube(), options={"group.instance.id": "a"})
