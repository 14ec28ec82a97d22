"""The benchmarks' arithmetic, and what they say of targets."""

from __future__ import annotations

import pytest

from bench.frame.page import Section, Target
from bench.frame.readings import Reading, Readings
from bench.frame.rounds import Case, cpu_each, interleave, rates
from bench.frame.statistics import percentile, ratios, spread
from bench.frame.tubes import array
from bench.latency import Compared, Probes


class Recorded(Readings):
    """Writes down which server's readings were taken; a unit takes a second, and 3 µs of CPU."""

    def __init__(self, server: str, log: list[str]) -> None:
        self._server = server
        self._log = log

    def of(self, work: Case) -> Reading:
        amount = work()
        self._log.append(self._server)
        return Reading(amount, amount, 0, amount * 2e-6, amount * 1e-6)


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


def test_rounds_go_there_and_back_after_one_that_does_not_count() -> None:
    begun: list[str] = []
    cases: dict[str, Case] = {"a": lambda: 1.0, "b": lambda: 2.0}
    taken = interleave(Recorded("one", []), cases, 2, begun.append)
    assert begun == ["b", "a", "a", "b", "b", "a"]
    assert [reading.amount for reading in taken["b"]] == [2.0, 2.0]


def test_a_case_of_another_server_is_read_there() -> None:
    log: list[str] = []
    cases: dict[str, Case] = {"a": lambda: 1.0, "b": lambda: 1.0}
    interleave(Recorded("one", log), cases, 1, elsewhere={"b": Recorded("other", log)})
    assert log == ["other", "one", "one", "other"]


def test_cpu_of_a_unit_is_the_servers_and_the_clients() -> None:
    taken = interleave(Recorded("one", []), {"a": lambda: 5.0}, 1)
    assert rates(taken, "a") == [1.0]
    assert cpu_each(taken, "a") == pytest.approx([3.0])


def test_probes_are_compared_with_those_by_hand() -> None:
    half = Probes([4.0, 6.0, 8.0], worker_cpu=0.1, server_cpu=0.3)
    probes = half.plus(Probes([6.0], worker_cpu=0.3, server_cpu=0.5))
    assert probes.row("name") == ["name", "4", "6.0", "8.0", "8.0", "8.0", "20%", "40%"]
    few = Compared(probes, [0.5, 2.0, 2.0])
    assert few.ratio(0.5) == 3.0
    assert few.row("name") == ["name", "2.00", "3.0", "", ""]
    assert Compared(probes, [2.0] * 100).row("name") == ["name", "2.00", "3.0", "2.00", "4.0"]


def test_an_array_is_written_as_postgres_reads_it() -> None:
    assert array([1, 20, 300]) == "{1,20,300}"
