"""`python -m bench [SCENARIO …]`: all by default; only a full run writes docs/performance.md."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from bench.frame import machine
from bench.frame.pace import Pace
from bench.frame.page import Section, targets_table
from bench.frame.server import running

SCENARIOS = (
    "drain",
    "worker",
    "latency",
    "moderate",
    "isolation",
    "capture",
    "options",
    "takeover",
    "many_tubes",
    "growth",
    "fleet",
    "fleet_view",
    "insert",
    "backfill",
    "sink_postgres",
    "sink_kafka",
    "opensearch",
    "sink_redis",
    "sink_webhook",
    "searchable",
    "slow_sink",
    "outbox",
    "outbox_stash",
    "outbox_latency",
    "outbox_long_writer",
    "observing",
    "verify",
    "documents",
)
"""`latency`, which has a target in milliseconds, comes early: some machines slow down in minutes of work."""
SPARK = ("spark_touch", "spark_keys", "spark_read", "spark_reconcile", "spark_growth", "spark_fifty")
"""`python -m bench spark` runs these, and writes a page of their own."""
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Page:
    """What is written after a full run."""

    title: str
    command: str
    file: Path
    notes: Path
    """What was tried; goes to the end of the page."""


PAGE = Page("Performance", "make bench", ROOT / "docs" / "performance.md", ROOT / "bench" / "notes.md")
SPARK_PAGE = Page(
    "Performance of Spark's side",
    "make bench ARGS=spark",
    ROOT / "docs" / "performance-spark.md",
    ROOT / "bench" / "notes_spark.md",
)


def main(names: list[str]) -> None:
    """Run the scenarios, print each, write the page."""
    whole = SPARK_PAGE if names == ["spark"] else None if names else PAGE
    names = list(SPARK) if names == ["spark"] else names or list(SCENARIOS)
    unknown = set(names) - {*SCENARIOS, *SPARK}
    if unknown:
        raise SystemExit(
            f"there is no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS + SPARK)}"
        )
    began = time.monotonic()
    sections: list[Section] = []
    pace = Pace()
    with running() as server:
        about = machine.describe(server.postgres.dsn())
        for name in names:
            pace.begin(name)
            section = import_module(f"bench.{name}").run(server)
            pace.end()
            sections.append(section)
            print(section.markdown(), f"\n\n({time.monotonic() - began:.0f} s)\n", flush=True)
    if whole is not None:
        head = f"{about}\n\n{pace.markdown()}"
        whole.file.write_text(written(whole, head, sections, time.monotonic() - began))
        print(f"written: {whole.file.relative_to(ROOT)}")


def written(page: Page, about: str, sections: list[Section], seconds: float) -> str:
    """The text of the page."""
    targets = [target for section in sections for target in section.targets]
    missed = [target for target in targets if not target.met]
    pieces = [
        f"# {page.title}",
        (
            f"Written by `{page.command}`, which measured all of this in one run of {seconds / 60:.0f} "
            "minutes. Cases that are compared ran in turn, A B C, C B A, and so on; figures are medians, "
            "with the least and the greatest in brackets. CPU is that of all processes of the server. "
            "Another machine, or another hour of a shared one, has other figures but much the same ratios: a "
            "target is a ratio to something that was measured in turn with it. Exceptions are promises "
            "with a unit (5 ms for a stream, what idle tubes cost), and the session timeout."
        ),
        about,
        f"## Targets: {len(targets) - len(missed)} met, {len(missed)} missed",
        targets_table(targets),
        *(section.markdown() for section in sections),
        page.notes.read_text().strip(),
    ]
    return "\n\n".join(pieces) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
