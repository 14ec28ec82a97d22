"""`python -m bench [SCENARIO …]`: all by default.

A run of all scenarios stores its results, and writes the pages and plots. A run of some prints them only,
unless `--keep` is given: then their figures replace the stored ones.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from importlib import import_module

from bench.frame import machine
from bench.frame.pace import Pace
from bench.frame.page import Section
from bench.frame.results import Results
from bench.frame.server import running
from bench.pages import PAGE, SPARK_PAGE, write

SCENARIOS = (
    "drain",
    "worker",
    "latency",
    "moderate",
    "isolation",
    "capture",
    "options",
    "takeover",
    "kill",
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
"""`python -m bench spark` runs these, which have a separate page."""
KEEP = "--keep"


def main(arguments: list[str]) -> None:
    """Run the scenarios, print each, store the results."""
    keep = KEEP in arguments
    asked = [name for name in arguments if name != KEEP]
    whole = SPARK_PAGE if asked == ["spark"] else None if asked else PAGE
    names = list(SPARK) if asked == ["spark"] else asked or list(SCENARIOS)
    unknown = set(names) - {*SCENARIOS, *SPARK}
    if unknown:
        raise SystemExit(
            f"there is no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS + SPARK)}"
        )
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    began = time.monotonic()
    sections: dict[str, Section] = {}
    pace = Pace()
    with running() as server:
        about = machine.describe(server.postgres.dsn())
        for name in names:
            pace.begin(name)
            sections[name] = import_module(f"bench.{name}").run(server)
            pace.end()
            print(sections[name].markdown(), f"\n\n({time.monotonic() - began:.0f} s)\n", flush=True)
    if whole is not None:
        minutes = round((time.monotonic() - began) / 60)
        Results(whole.title, whole.command, today, minutes, about, pace.plain(), sections).save(whole.results)
    elif keep:
        _keep(sections, today)
    if whole is not None or keep:
        write()


def _keep(sections: dict[str, Section], today: str) -> None:
    """Put sections that were measured apart in place of the stored ones."""
    for page, known in ((PAGE, SCENARIOS), (SPARK_PAGE, SPARK)):
        results = Results.load(page.results)
        for name in filter(sections.__contains__, known):
            sections[name].date = today
            results.sections[name] = sections[name]
        results.save(page.results)


if __name__ == "__main__":
    main(sys.argv[1:])
