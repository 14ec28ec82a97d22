"""Workers of outboxes come and go, again and again: all arrives, and each mode keeps its promise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytube.embedded.kafka_real import RealKafka
from tests.crash.outbox_judge import MODES
from tests.crash.outboxes import Load, Outboxes
from tests.helpers.waiting import wait_until

MakeOutboxes = Callable[[int, str], Outboxes]

PAUSE = 5.0
"""Seconds from one rebalance to the next, of the long run."""
TIMES = 12


@pytest.fixture
def make(dsn: str, tmp_path: Path, kafka_real: RealKafka) -> Iterator[MakeOutboxes]:
    with ExitStack() as stack:

        def make(partitions: int, election: str) -> Outboxes:
            made = Outboxes(dsn, tmp_path, kafka_real.bootstrap, election=election, partitions=partitions)
            return stack.enter_context(made)

        yield make


def wait_until_led(outboxes: Outboxes, partitions: int, *numbers: int) -> None:
    """Until all partitions are led, and each of these workers, and nobody else, leads some."""
    workers = {f"worker-{number}" for number in numbers}

    def is_so() -> bool:
        leaders = outboxes.leaders()
        return len(leaders) == partitions * len(MODES) and set(leaders.values()) == workers

    outboxes.wait_until(is_so, f"{sorted(workers)} lead")


def end(outboxes: Outboxes, number: int, *, kill: bool) -> None:
    """Kill a worker, or ask it to end and wait until it has ended in order."""
    if kill:
        outboxes.kill(number)
        return
    process = outboxes.processes[number]
    process.terminate()
    assert process.wait(timeout=60) == 0, outboxes.last_words(number)


def check(outboxes: Outboxes) -> None:
    """After the load."""
    outboxes.wait_until_drained()
    outboxes.terminate()
    assert outboxes.judge() == dict.fromkeys(MODES, 0), "a process that is gone sends nothing"


def test_workers_come_and_go(make: MakeOutboxes) -> None:
    outboxes = make(2, "neli")
    outboxes.start(1)
    with Load(outboxes, pause=0.2):
        wait_until_led(outboxes, 2, 1)
        outboxes.start(2)
        wait_until_led(outboxes, 2, 1, 2)
        outboxes.go_on("one joined")
        end(outboxes, 1, kill=False)
        wait_until_led(outboxes, 2, 2)
        outboxes.start(3)
        wait_until_led(outboxes, 2, 2, 3)
        end(outboxes, 2, kill=True)
        wait_until_led(outboxes, 2, 3)
        outboxes.go_on("one died")
    check(outboxes)


@pytest.mark.soak
@pytest.mark.parametrize("election", ["lease", "neli"])
@pytest.mark.parametrize("workers", [1, 4, 8])
def test_one_is_replaced_every_five_seconds(make: MakeOutboxes, workers: int, election: str) -> None:
    """In turn by a kill and in order, for a minute."""
    outboxes = make(workers, election)
    numbers = range(1, workers + 1)
    for number in numbers:
        outboxes.start(number)
    with Load(outboxes):
        wait_until_led(outboxes, workers, *numbers)
        for turn in range(TIMES):
            number = numbers[turn % workers]
            end(outboxes, number, kill=turn % 2 == 0)
            outboxes.start(number)
            changed = time.monotonic()
            wait_until(lambda: time.monotonic() > changed + PAUSE, what="five seconds are over")  # noqa: B023
        wait_until_led(outboxes, workers, *numbers)
        outboxes.go_on("the last rebalance")
    check(outboxes)
