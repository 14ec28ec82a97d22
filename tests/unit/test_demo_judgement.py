"""What the demonstration concludes from what it saw."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytube.demo.screen import WORKERS, Screen, Takeover, lag_through, percentiles, verdict
from pytube.demo.tube import Moment, differences, latencies, number_in, problems, transactions_in

EQUAL: dict[str, list[str]] = {"missing": [], "extra": [], "different": []}


def test_equal_both_ways() -> None:
    found = differences({(0, 1): {"a": 1}, (1, 1): {"a": 2}}, {(1, 1): {"a": 2}, (0, 1): {"a": 1}})
    assert found == EQUAL


def test_every_kind_of_difference_is_found() -> None:
    source = {(0, key): {"v": key} for key in range(20)}
    sink = {(0, key): {"v": -key} for key in range(10)} | {(7, key): {"v": "x" * 1000} for key in range(5)}
    found = differences(source, sink)
    # 0 is its own negative.
    assert {kind: len(texts) for kind, texts in found.items()} == {"missing": 10, "extra": 5, "different": 9}
    assert found["different"][0] == 'different: shard 0 id 1: source {"v": 1}, sink {"v": -1}'
    assert found["missing"][0] == 'missing at the sink: shard 0 id 10: {"v": 10}'
    assert found["extra"][0].startswith("only at the sink: shard 7 id 0: ")
    assert len(found["extra"][0]) < 400


def test_a_probe_is_there_when_it_or_a_later_one_is() -> None:
    commits = [Moment(1, 10.0), Moment(2, 10.5), Moment(3, 11.0), Moment(4, 11.5)]
    arrivals = [Moment(1, 9.9), Moment(1, 10.1), Moment(3, 12.0)]
    assert latencies(commits, arrivals) == [0.0, 1.5, 1.0]
    assert latencies([], arrivals) == []


def test_percentiles() -> None:
    assert percentiles([]) == "not measured"
    assert percentiles([3.0]) == "half within 3.0 s, 99 % within 3.0 s"
    assert percentiles(float(n) for n in range(100, 0, -1)) == "half within 50.0 s, 99 % within 99.0 s"


def test_the_probe_s_number() -> None:
    assert number_in({"filler": "probe 17" + " " * 76}) == 17
    for document in ({"filler": " " * 84}, {"filler": None}, {}, None, {"filler": "probe x"}):
        assert number_in(document) is None


def test_the_transactions_of_pgbench() -> None:
    assert transactions_in("progress: 5 s\nnumber of transactions actually processed: 1234\n") == 1234
    assert transactions_in("pgbench: error") is None


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


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({}, None),
        ({"rows": 0}, "the source has no rows, so nothing was compared"),
        (
            {"found": {"missing": ["a"], "extra": ["b", "c"], "different": ["d", "e", "f"]}},
            (
                "the sink is not equal to the source: 1 rows are missing there, "
                "2 are there only, 3 are different"
            ),
        ),
        ({"parked": 2}, "2 documents were set aside with an error"),
        ({"unseen": 1}, "1 numbers of the probe never came to the sink"),
        ({"transactions": 0}, "the load did no transaction"),
        ({"delivered": {"w1": 1, "w2": 0, "w3": 1}}, "the worker w2 has delivered nothing"),
    ],
)
def test_each_thing_that_can_be_wrong(other: dict[str, Any], problem: str | None) -> None:
    well: dict[str, Any] = {
        "rows": 3,
        "found": EQUAL,
        "parked": 0,
        "unseen": 0,
        "transactions": 100,
        "delivered": dict.fromkeys(WORKERS, 10),
    }
    assert problems(**well | other) == ([] if problem is None else [problem])


def test_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        str(Takeover("w2", 100.0, 5.25))
        == "5.2 s from the SIGKILL of w2 until the others had delivered for it"
    )
    others = {"demo --outbox": "another one"}
    assert verdict(Screen(), Path("/x"), [], "EQUAL", others, ["never said"]) == 0
    out = capsys.readouterr().out
    assert "EQUAL" in out
    assert re.search(r"Try next\n.* demo --outbox +another one", out)
    assert "never said" not in out
    missing = differences({(0, 1): {"v": "[red]"}}, {})["missing"]
    assert verdict(Screen(), Path("/x"), ["not equal"], "EQUAL", others, missing) == 1
    out = capsys.readouterr().out
    assert "Try next" not in out
    assert "WRONG: not equal" in out
    assert 'missing at the sink: shard 0 id 1: {"v": "[red]"}' in out
    assert "/x" in out
    assert "EQUAL" not in out
