"""The benchmarks' arithmetic, and what they say of targets."""

from __future__ import annotations

from bench.frame.page import Section, Target
from bench.frame.statistics import percentile, ratios, spread


def test_spread_is_least_middle_greatest() -> None:
    assert spread([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    assert spread([1500.0, 1000.0, 2000.0]).text(0) == "1,500 (1,000 to 2,000)"


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([1.0, 20.0, 300.0], [2.0, 40.0, 600.0]) == (0.5, 0.5, 0.5)


def test_percentile() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert percentile(values, 0.5) == 51
    assert percentile(values, 0.99) == 100
    assert percentile(values, 1.0) == 100


def test_a_target_says_by_how_much_it_was_missed() -> None:
    assert Target("speed", 100, 100).verdict == "met"
    assert Target("speed", 100, 80).verdict == "missed by 20%"
    assert Target("time", 10, 15, "at most").verdict == "missed by 50%"
    assert Target("time", 10, 10, "at most").verdict == "met"


def test_a_section_is_markdown() -> None:
    section = Section("Title", "Text.")
    section.table(["", "rate"], [["one", "1"]])
    section.targets.append(Target("speed", 1, 2, unit="/s"))
    assert section.markdown() == (
        "## Title\n\nText.\n\n|  | rate |\n| --- | ---: |\n| one | 1 |\n\n"
        "| target | goal | reached | verdict |\n| --- | ---: | ---: | ---: |\n"
        "| speed | at least 1/s | 2/s | met |"
    )
