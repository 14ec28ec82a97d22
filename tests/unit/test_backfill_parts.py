"""Limits and progress of backfills."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pytube.backfill.run import Progress, Rate, Replica, pods_of_chunk, reason_to_wait
from pytube.cli.backfill import progress_display
from pytube.config.tubes import BackfillConfig

MB = 1024 * 1024


@pytest.mark.parametrize(
    ("waiting", "replicas", "reason"),
    [
        (0, [], None),
        (1999, [Replica("b", 10.0, 256 * MB)], None),
        (2000, [], "2000 backfill pods or more wait in the tube (limit 2000)"),
        (0, [Replica("b", 10.5, 0)], "the replica b is 10.5 s behind (limit 10 s)"),
        (0, [Replica("b", None, 300 * MB)], "the replica b is 300 MB of WAL behind (limit 256 MB)"),
        # The slowest is not the one that lacks most.
        (
            0,
            [Replica("a", 1.0, 200 * MB), Replica("b", 30.0, MB), Replica("c", None, None)],
            "the replica b is 30.0 s behind (limit 10 s)",
        ),
        (
            0,
            [Replica("a", 9.0, 300 * MB), Replica("b", 8.0, 400 * MB)],
            "the replica b is 400 MB of WAL behind (limit 256 MB)",
        ),
    ],
)
def test_what_slows_a_backfill(waiting: int, replicas: list[Replica], reason: str | None) -> None:
    assert reason_to_wait(BackfillConfig(), waiting, replicas) == reason


def test_limits_that_are_off() -> None:
    limits = BackfillConfig.model_validate({"replica_lag": "off", "replica_behind": "off"})
    assert reason_to_wait(limits, 0, [Replica("delayed", 3600.0, 1000 * MB)]) is None
    assert limits.model_dump()["replica_lag"] == "off", "as `pytube config show` has it"


@pytest.mark.parametrize("key", ["replica_lag", "rate"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, "much"])
def test_limits_that_are_none(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        BackfillConfig.model_validate({key: value})


@pytest.mark.parametrize(
    ("rate", "chunk", "pods"), [(None, 40, 40), (500.0, 40, 1), (1.0, 40, 1), (5000.0, 40, 10), (1e9, 40, 40)]
)
def test_a_chunk_fits_the_rate(rate: float | None, chunk: int, pods: int) -> None:
    assert pods_of_chunk(BackfillConfig(rate=rate, chunk=chunk)) == pods


def test_lines_of_a_backfill_that_workers_hold_up(capsys: pytest.CaptureFixture[str]) -> None:
    """Its note comes and goes with each chunk."""
    with progress_display() as display:
        for number in range(50):
            for note in (None, "waits: 2000 backfill pods or more wait in the tube (limit 2000)"):
                display(Progress(1, "t", "items", "inserting", False, number, 99, 1.0, note))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_lines_of_what_a_backfill_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display() as display:
        for note in ("waits for transactions to end: pid 1, pid 2", "waits for transactions to end: pid 2"):
            display(Progress(1, "t", "items", "waiting", False, 0, None, None, note))
        display(Progress(1, "t", "items", "waiting", False, 0, None, None, "collects the ids"))
    assert capsys.readouterr().out.splitlines() == [
        "backfill 1 of items: waiting, waits for transactions to end: pid 1, pid 2",
        "backfill 1 of items: waiting, collects the ids",
    ]


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    rate = Rate()
    assert rate.observe(0, 100.0) is None
    assert rate.observe(1000, 101.0) == 1000
    assert [rate.observe(1000, 100.0 + second) for second in range(2, 60)][-1] == 0
    assert rate.observe(31_000, 190.0) == pytest.approx(1000, rel=0.05)


def test_the_time_left() -> None:
    progress = Progress(1, "t", "items", "inserting", False, 500, 2000, 100.0, None)
    assert progress.seconds_left == 15
    assert Progress(1, "t", "items", "waiting", False, 0, None, None, None).seconds_left is None
