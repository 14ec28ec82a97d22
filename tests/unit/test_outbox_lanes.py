"""In strict order a thread waits for librdkafka's reports; the event loop is woken by what is decided."""

from __future__ import annotations

import threading

import pytest

from pytube.outbox.records import Fault
from tests.helpers.waiting import wait_until_async
from tests.unit.fake_producer import Rig, chunk

# Of the two producers, the first has the keys a, b and c.


async def test_the_last_report_of_a_chunk_wakes_the_event_loop() -> None:
    with Rig(strict=True) as rig:
        rig.producer.send(chunk("a", "b"))
        made, _ = rig.clients.made
        made.report(None)
        await wait_until_async(lambda: not made.reports, what="the first report is told")
        assert (rig.settled(), rig.told_by) == ([], []), "the other one is still to come"
        made.report(None)
        await wait_until_async(lambda: rig.told_by, what="the event loop is woken")
        assert rig.told_by == [threading.get_ident()]
        assert rig.settled() == [([1, 2], {})]
        assert not rig.producer.is_busy
        assert threading.get_ident() not in made.polled_by, "the event loop would take reports of others"


async def test_reports_that_come_while_records_are_handed_over_count() -> None:
    with Rig(strict=True) as rig:
        await rig.producer.open((), "box/1")
        made, _ = rig.clients.made
        made.answers_at_once = True
        rig.producer.send(chunk("a", "b", "c"))
        assert rig.told_by, "nobody else would tell of it"
        assert rig.settled() == [([1, 2, 3], {})]


async def test_what_is_not_taken_wakes_the_event_loop() -> None:
    with Rig(strict=True) as rig:
        rig.producer.send(chunk("a", topic="no such name"))
        assert len(rig.told_by) == 1
        assert rig.settled() == [([1], {1: Fault.POISON})]
        rig.producer.send(chunk("a", topic="t"))
        made, _ = rig.clients.made
        made.report()
        await wait_until_async(lambda: len(rig.told_by) == 2, what="it is written")
        assert rig.settled() == [([1], {})]
        made.room = 0
        rig.producer.send(chunk("b", first=2))
        assert len(rig.told_by) == 3
        assert rig.settled() == [([2], {2: Fault.UNSENT})]


async def test_partitions_that_are_learned_wake_the_event_loop() -> None:
    with Rig(strict=True) as rig:
        rig.producer.send(chunk("a", apart="p"))
        await wait_until_async(lambda: rig.told_by, what="they are known")
        assert rig.settled() == [([1], {1: Fault.UNSENT})]


@pytest.mark.parametrize("error", [None, RuntimeError("a bug")])
async def test_an_error_gives_up_all_and_another_producer_and_thread_go_on(error: Exception | None) -> None:
    """One that is fatal to Kafka's producer, or any other."""
    with Rig(strict=True) as rig:
        rig.producer.send(chunk("a"))
        broken, other = rig.clients.made
        await wait_until_async(lambda: broken.polled_by, what="somebody waits for reports")
        broken.fail(error)
        await wait_until_async(lambda: rig.told_by, what="the event loop is woken")
        found = rig.settled()
        assert found == []
        assert not rig.has_room(), "a record of the producer that broke may still be written"

        def is_settled() -> bool:
            found.extend(rig.settled())
            return bool(found)

        await wait_until_async(is_settled, what="what was given up is told")
        assert found == [([1], {1: Fault.UNSENT})]
        assert rig.has_room()
        await wait_until_async(
            lambda: not living() & (broken.polled_by | other.polled_by), what="its threads end"
        )
        rig.told_by.clear()
        rig.producer.send(chunk("a"))
        _, _, made, _ = rig.clients.made
        made.report()
        await wait_until_async(lambda: rig.told_by, what="the event loop is woken again")
        assert rig.settled() == [([1], {})]


async def test_its_end_ends_the_threads() -> None:
    with Rig(strict=True) as rig:
        await rig.producer.open((), "box/1")
        made = rig.clients.made
        await wait_until_async(lambda: all(one.polled_by for one in made), what="threads wait for reports")
        threads = {thread for one in made for thread in one.polled_by}
        assert len(threads) == 2
        assert threads <= living()
    await wait_until_async(lambda: not living() & threads, what="they end")


def living() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate()}
