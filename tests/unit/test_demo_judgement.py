"""What the demonstration concludes from what it saw."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from pytube.demo.screen import WORKERS, Latency, Screen, Takeover, duration, lag_through
from pytube.demo.source import Arrival, Commit, number_in, transactions_in
from pytube.demo.tube import Comparison, Findings, compare, latencies, problems, report

FAST = Latency(10, 0.01, 0.02, 0.03)


def findings(**other: Any) -> Findings:
    found = Findings(
        comparison=Comparison(rows=3),
        transactions=100,
        load_seconds=10.0,
        copy="the file /x/sink.jsonl",
        parked=0,
        takeover=Takeover("w2", 100.0, {0: 4.5, 3: 5.25}),
        before=FAST,
        lag=[(98.0, 0.1), (99.0, 0.5), (100.1, 4.0), (101.0, 3.0)],
        unseen=0,
        delivered=dict.fromkeys(WORKERS, 10),
        exits=dict.fromkeys(WORKERS, 0),
    )
    return dataclasses.replace(found, **other)


def test_equal_both_ways() -> None:
    found = compare([((0, 1), {"a": 1}), ((1, 1), {"a": 2})], {(1, 1): {"a": 2}, (0, 1): {"a": 1}})
    assert found == Comparison(rows=2)
    assert found.equal


def test_every_kind_of_difference_is_counted_and_the_first_few_are_shown() -> None:
    source = [((0, key), {"v": key}) for key in range(20)]
    sink = {(0, key): {"v": -key} for key in range(10)} | {(7, key): {"v": "x" * 1000} for key in range(5)}
    found = compare(source, sink)
    # 0 is its own negative.
    assert (found.rows, found.missing, found.extra, found.different) == (20, 10, 5, 9)
    assert not found.equal
    assert len(found.examples) == 9
    assert found.examples[0] == 'different: shard 0 id 1: source {"v": 1}, sink {"v": -1}'
    assert found.examples[3] == 'missing at the sink: shard 0 id 10: {"v": 10}'
    assert found.examples[6].startswith("only at the sink: shard 7 id 0: ")
    assert len(found.examples[6]) < 400


def test_a_probe_is_there_when_it_or_a_later_one_is() -> None:
    commits = [Commit(1, 10.0), Commit(2, 10.5), Commit(3, 11.0), Commit(4, 11.5)]
    arrivals = [Arrival(1, 9.9), Arrival(1, 10.1), Arrival(3, 12.0)]
    assert latencies(commits, arrivals) == [0.0, 1.5, 1.0]
    assert latencies([], arrivals) == []


def test_percentiles() -> None:
    assert Latency.of([]) == Latency(0, 0.0, 0.0, 0.0)
    assert Latency.of([3.0]) == Latency(1, 3.0, 3.0, 3.0)
    assert Latency.of([float(n) for n in range(200, 0, -1)]) == Latency(200, 100.0, 198.0, 200.0)


def test_the_probe_s_number() -> None:
    assert number_in({"filler": "probe 17" + " " * 76}) == 17
    for document in ({"filler": " " * 84}, {"filler": None}, {}, None, {"filler": "probe x"}):
        assert number_in(document) is None


def test_the_transactions_of_pgbench() -> None:
    assert transactions_in("progress: 5 s\nnumber of transactions actually processed: 1234\n") == 1234
    assert transactions_in("pgbench: error") is None


def test_lengths_of_time() -> None:
    assert [duration(s) for s in (-1, 0, 0.0125, 0.9996, 61)] == ["0 ms", "0 ms", "12 ms", "1.0 s", "61.0 s"]


def test_the_lag_through_the_kill() -> None:
    """Of each block the longest; one in which nothing was written is empty."""
    sample = [(97.0, 0.1), (97.4, 0.5), (98.6, 0.4), (100.0, 4.0), (100.6, 3.4), (101.9, 0.1)]
    line, mark, scale = lag_through(sample, 100.0, "w2").splitlines()
    assert line == "▁▂    ▁     █ ▇    ▁"
    assert mark == "            ↑ SIGKILL of w2"
    assert scale == "a block is 0.25 s; ▁ up to 500 ms, █ 4.0 s"


def test_the_lag_where_little_was_seen() -> None:
    assert lag_through([], 100.0, "w1") == "not measured"
    assert lag_through([(50.0, 1.0)], 100.0, "w1").splitlines()[0] == "█" + " " * 50
    assert lag_through([(100.0, 0.0)], 100.0, "w1").splitlines()[0] == "▁"


def test_a_long_run_has_wider_blocks() -> None:
    line, mark, scale = lag_through([(100.0 + n / 10, 1.0) for n in range(3000)], 200.0, "w1").splitlines()
    assert line == "█" * 30
    assert mark.index("↑") == 10
    assert scale.startswith("a block is 10 s; ")


def test_all_well() -> None:
    assert problems(findings()) == []


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"comparison": Comparison(rows=0)}, "the source has no rows, so nothing was compared"),
        (
            {"comparison": Comparison(3, missing=1, extra=2, different=3)},
            (
                "the sink is not equal to the source: 1 rows are missing there, "
                "2 are there only, 3 are different"
            ),
        ),
        ({"parked": 2}, "2 documents were set aside with an error"),
        ({"unseen": 1}, "1 numbers of the probe never came to the sink"),
        ({"transactions": 0}, "the load did no transaction"),
        ({"delivered": {"w1": 1, "w2": 0, "w3": 1}}, "the worker w2 has delivered nothing"),
        (
            {"exits": {"w1": 0, "w2": 0, "w3": -15}},
            "the worker w3 ended with -15 after SIGTERM, not with 0",
        ),
    ],
)
def test_each_thing_that_can_be_wrong(other: dict[str, Any], problem: str) -> None:
    assert problems(findings(**other)) == [problem]


def test_the_report_of_a_good_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(findings(), directory=Path("/x"), screen=Screen()) == 0
    out = capsys.readouterr().out
    assert "5.2 s from the SIGKILL of w2" in out
    assert "EQUAL: all 3 rows of the source are at the sink, and nothing else is." in out


def test_the_report_of_a_bad_end(capsys: pytest.CaptureFixture[str]) -> None:
    comparison = compare([((0, 1), {"v": "[red]"})], {})
    found = findings(comparison=comparison, exits={}, before=Latency.of([]))
    assert report(found, directory=Path("/x"), screen=Screen()) == 1
    out = capsys.readouterr().out
    assert "WRONG: the sink is not equal to the source: 1 rows are missing there" in out
    assert 'missing at the sink: shard 0 id 1: {"v": "[red]"}' in out
    assert "WRONG: the worker w1 ended with None after SIGTERM, not with 0" in out
    assert "not measured" in out
    assert "/x" in out
    assert "EQUAL" not in out
