"""`python -m bench.pages` renders pages and plots of docs/, and results of bench/, from the stored figures.

A template has `{{ … }}` where the page has a figure; its parts are separated by semicolons:

    {{ capture; 1-row UPDATE, synchronous_commit on; 1 partition; rate/s }}
                                    a cell: scenario; text of the caption or first heading; row; column
    {{ searchable; drained }}       a figure of a paragraph
    {{ target; worker; NAME }}      the figure that a target reached
    {{ when; capture }}             the day of the measurement
    {{ machine; cores }}            a property of the machine
    {{ verdicts }}                  how many targets were met and missed
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bench import plots
from bench.frame.results import Results

BENCH = Path(__file__).resolve().parent
DOCS = BENCH.parent / "docs"
_FIGURE = re.compile(r"\{\{ (.*?) \}\}")
_SPREAD = re.compile(r"(?<=\d) to (?=[\d.,]+\))")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of docs/, and the files of bench/ that it is made from."""

    title: str
    command: str
    name: str
    results_name: str

    @property
    def file(self) -> Path:
        """The page."""
        return DOCS / f"{self.name}.md"

    @property
    def template(self) -> Path:
        """Its text without figures."""
        return BENCH / "templates" / f"{self.name}.md"

    @property
    def results(self) -> Path:
        """All figures."""
        return BENCH / f"{self.results_name}.json"

    @property
    def listing(self) -> Path:
        """The same, for readers."""
        return BENCH / f"{self.results_name}.md"


PAGE = Page("Performance", "make bench", "performance", "results")
SPARK_PAGE = Page(
    "Performance of Spark's side", "make bench ARGS=spark", "performance-spark", "results_spark"
)
PAGES = (PAGE, SPARK_PAGE)


def rendered() -> dict[Path, str]:
    """The text of each file that is made from the results."""
    files: dict[Path, str] = {}
    for page in PAGES:
        results = Results.load(page.results)
        files[page.listing] = results.markdown()
        files[page.file] = filled(page.template.read_text(), results)
    for name, text in plots.drawn(Results.load(PAGE.results)).items():
        files[DOCS / "plots" / f"{name}.svg"] = text
    return files


def filled(template: str, results: Results) -> str:
    """The template with its figures; a spread such as `7 (6 to 8)` becomes `7 (6–8)`."""
    return _FIGURE.sub(lambda found: _SPREAD.sub("\u2013", _figure(results, *found[1].split("; "))), template)


def _figure(results: Results, kind: str, *rest: str) -> str:
    match kind, *rest:
        case ["when", scenario]:
            return results.when(scenario)
        case ["machine", name]:
            return results.of_machine(name)
        case ["verdicts"]:
            met, missed = results.verdicts
            return f"{met} met, {missed} missed"
        case ["target", scenario, name]:
            return results.sections[scenario].target(name).row()[2]
        case [scenario, name]:
            return results.sections[scenario].figures[name]
        case [scenario, caption, row, column]:
            return results.sections[scenario].cell(caption, row, column)
    raise LookupError(f"{kind}; {'; '.join(rest)}")


def write() -> None:
    """Write all of them."""
    for path, text in rendered().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(f"written: {path.relative_to(BENCH.parent)}")


if __name__ == "__main__":
    write()
