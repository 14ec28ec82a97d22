"""The pages and plots on performance are those that the stored figures give."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock
from xml.etree import ElementTree as ET

import pytest

from bench import __main__ as bench
from bench import pages, plots
from bench.frame import machine
from bench.frame.page import Section, Target
from bench.frame.results import Results
from bench.pages import BENCH, PAGE, PAGES, filled, rendered
from bench.plots import Bar, Plot
from tests.helpers.database import ROOT

FILES = rendered()
PLOTS = [path for path in FILES if path.suffix == ".svg"]


def results() -> Results:
    section = Section("Speed", "How fast.", date="2026-02-01", remark="on a quiet machine")
    section.say("**writes**")
    section.table(["", "rate/s"], [["one", "7 (6 to 8)"], ["two", "9"]])
    section.say("In all 12.", total="12")
    section.table(["reads", "waiting", "rate/s"], [["1", "10", "5"], ["1", "20", "6"]])
    section.targets.append(Target("speed", 1, 2, unit="/s"))
    return Results(
        "Title",
        "make bench",
        "2026-01-01",
        30,
        [["cores", "2"]],
        {"best": "3", "rows": []},
        {"speed": section},
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_what_the_figures_give(path: Path) -> None:
    assert path.read_text() == FILES[path], "renew it: python -m bench.pages"


def test_no_plot_is_left_over_or_unused() -> None:
    assert sorted((ROOT / "docs" / "plots").glob("*.svg")) == sorted(PLOTS)
    shown = re.findall(r"!\[[^]]+\]\(plots/(\S+)\)", "".join(page.template.read_text() for page in PAGES))
    assert sorted(shown) == sorted(path.name for path in PLOTS)


@pytest.mark.parametrize(
    ("place", "figure"),
    [
        ("speed; writes; one; rate/s", "7 (6\u20138)"),
        ("speed; reads; 1 + 2*; rate/s", "6"),
        ("speed; total", "12"),
        ("target; speed; speed", "2/s"),
        ("when; speed", "2026-02-01, on a quiet machine"),
        ("machine; cores", "2"),
        ("verdicts", "1 met, 0 missed"),
    ],
)
def test_a_template_gets_its_figures(place: str, figure: str) -> None:
    assert filled(f"It was {{{{ {place} }}}}.", results()) == f"It was {figure}."


@pytest.mark.parametrize(
    "place", ["speed; writes; three; rate/s", "speed; reads; 1; rate/s", "speed; other; one; rate/s"]
)
def test_a_cell_that_is_missing_or_not_alone_is_refused(place: str) -> None:
    with pytest.raises(LookupError):
        filled(f"{{{{ {place} }}}}", results())


def test_results_are_stored_whole(tmp_path: Path) -> None:
    results().save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == results()


def test_scenarios_that_are_kept_replace_their_figures_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for page in PAGES:
        (tmp_path / page.results.name).write_text(page.results.read_text())
    monkeypatch.setattr(pages, "BENCH", tmp_path)
    bench._keep({"drain": Section("Drain", "Anew.")}, "2026-02-01")
    before, after = Results.load(BENCH / PAGE.results.name), Results.load(PAGE.results)
    assert (after.sections["drain"].text, after.when("drain")) == ("Anew.", "2026-02-01")
    assert list(after.sections) == list(before.sections)
    assert after.sections["worker"] == before.sections["worker"]


def test_a_run_of_all_scenarios_stores_and_renders_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    section = Section("One", "Measured.")
    section.say("7 a second", rate="7")
    stored = results()
    stored.sections = {"one": section}
    (tmp_path / "templates").mkdir()
    for page in PAGES:
        (tmp_path / "templates" / f"{page.name}.md").write_text("{{ when; one }}: {{ one; rate }}/s")
        stored.save(tmp_path / page.results.name)
    monkeypatch.setattr(pages, "BENCH", tmp_path)
    monkeypatch.setattr(pages, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(plots, "drawn", lambda _: {"rate": "<svg/>"})
    monkeypatch.setattr(bench, "SCENARIOS", ("one",))
    monkeypatch.setattr(bench, "SPARK", ("one",))
    monkeypatch.setattr(bench, "running", lambda: nullcontext(Mock()))
    monkeypatch.setattr(machine, "describe", lambda _: [["cores", "2"]])
    monkeypatch.setattr(bench, "import_module", lambda _: Mock(run=lambda _: section))
    bench.main(["spark"])
    bench.main([])
    stored = Results.load(PAGE.results)
    assert stored.sections == {"one": section}
    assert [row[0] for row in stored.pace["rows"]] == ["one"]
    assert PAGE.file.read_text() == f"{stored.date}: 7/s"
    assert (tmp_path / "docs" / "plots" / "rate.svg").read_text() == "<svg/>"
    assert "7 a second" in PAGE.listing.read_text()


@pytest.mark.parametrize("path", PLOTS, ids=lambda path: path.name)
def test_a_plot_has_a_background_and_stays_within_it(path: Path) -> None:
    root = ET.fromstring(FILES[path])  # noqa: S314 (pytube wrote it)
    *_, width, height = map(float, root.attrib["viewBox"].split())
    background, *bars = [element for element in root if element.tag.endswith("rect")]
    assert (float(background.attrib["width"]), float(background.attrib["height"])) == (width, height)
    for bar in bars:
        assert 0 < float(bar.attrib["x"]) + float(bar.attrib["width"]) < width
    for line in re.findall(r"M[\d.]+ [\d.]+H([\d.]+)", FILES[path]):
        assert 0 < float(line) < width - 150  # the figures stand to the right


def test_the_scale_reaches_above_all_bars() -> None:
    bars = [Bar.of("a", "1,000 (900 to 2,300)"), Bar.of("b", "17")]
    assert Plot("", "", bars).ticks == [0, 500, 1000, 1500, 2000, 2500]
    ranges = [Bar.range("a", "2.5", "40.0"), Bar.range("b", "30", "31")]
    assert Plot("", "", ranges, ranges=True).ticks == [1, 3, 10, 30, 100]
