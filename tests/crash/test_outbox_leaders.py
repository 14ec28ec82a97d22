"""A leader of outboxes is killed, or stopped with records on their way: what a consumer finds."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytube.embedded.kafka_real import RealKafka
from tests.crash.outbox_judge import MODES, TRANSACTIONS
from tests.crash.outboxes import Load, Outboxes
from tests.helpers.proxy import Mode, Proxy


@pytest.fixture
def outboxes(dsn: str, tmp_path: Path, kafka_real: RealKafka) -> Iterator[Outboxes]:
    with Outboxes(dsn, tmp_path, kafka_real.bootstrap) as outboxes:
        yield outboxes


def led_by(outboxes: Outboxes, number: int) -> bool:
    leaders = outboxes.leaders()
    return len(leaders) == 2 * len(MODES) and set(leaders.values()) == {f"worker-{number}"}


def test_the_leader_is_killed(outboxes: Outboxes) -> None:
    outboxes.start(1)
    with Load(outboxes, pause=0.2):
        outboxes.go_on("the start")
        outboxes.kill(1)
        outboxes.start(2)
        outboxes.go_on("the kill")
    outboxes.wait_until_drained()
    outboxes.terminate()
    assert outboxes.judge() == dict.fromkeys(MODES, 0), "a process that is gone sends nothing"


def test_a_leader_is_stopped_with_records_queued_in_its_producer(
    outboxes: Outboxes, kafka_proxy: Proxy
) -> None:
    """Its successor delivers them. When it goes on, its producer may still send them: late, and again."""
    outboxes.start(1, kafka_proxy.address)
    outboxes.wait_until(lambda: led_by(outboxes, 1), "it leads")
    with outboxes.connect() as connection:
        for mode in MODES:
            outboxes.stash(connection, mode, [str(number) for number in range(20)])
        # What its producers ask the broker first may be more than comes through in time once it is slow.
        outboxes.wait_until_drained()
        kafka_proxy.switch(Mode.SLOW, rate=2000)
        # These take minutes. Nothing else is written yet: a backlog would keep the worker from them for ever.
        for mode in MODES:
            outboxes.stash(connection, mode, ["queued"] * 400, size=1000)
    outboxes.wait_until(
        lambda: all(outboxes.counts(mode, "queued")[1] for mode in MODES), "the worker has them"
    )
    outboxes.signal(1, signal.SIGSTOP)
    with Load(outboxes, pause=0.2):
        outboxes.start(2)
        outboxes.wait_until(lambda: led_by(outboxes, 2), "the other one leads")
        outboxes.wait_until(
            lambda: all(outboxes.counts(mode, "queued") == (0, 0) for mode in MODES), "it delivers them"
        )
        kafka_proxy.switch(Mode.PASS)
        outboxes.signal(1, signal.SIGCONT)
        outboxes.wait_until(lambda: "leader_fenced" in outboxes.log(1), "it learns that its terms are over")
        outboxes.go_on("both live")
    outboxes.wait_until_drained()
    outboxes.terminate()
    late = outboxes.judge()
    print(f"came late: {late}")  # noqa: T201 # a measurement, shown by pytest -s
    assert late[TRANSACTIONS] == 0
