"""`python -m tests.crash.chaos`: the long run; exits with 1 when anything is wrong, or was not tried."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from pytube import logs
from tests.crash.chaos.course import LONG, Run
from tests.crash.chaos.invariants import Stopped, Violation
from tests.crash.chaos.page import Outcome, Records, report


def main() -> int:
    """Run as the command line says."""
    arguments = _arguments()
    logs.configure("warning")  # ours; workers have files of their own
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="pytube-chaos-", dir="/tmp"))
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)  # the database server's user is not ours when we are root
    say(f"seed {arguments.seed}, {arguments.minutes:g} minutes, everything is in {folder}")
    run = Run(folder, arguments.seed, say)
    began, started = time.monotonic(), datetime.now(UTC)
    try:
        violations = _go(run, arguments.minutes * 60, arguments.leg)
        if arguments.report is not None:
            outcome = _outcome(run, started, time.monotonic() - began, violations)
            arguments.report.write_text(report(outcome))
    finally:
        run.close()
    never = run.monkey.missing if arguments.minutes * 60 >= LONG else []
    if never:
        say(f"never struck: {', '.join(never)}")
    if violations or never:
        say(f"journals, logs and the list of faults are in {folder}")
        return 1
    if arguments.folder is None:
        shutil.rmtree(folder)
    return 0


def _go(run: Run, seconds: float, leg: float) -> list[Violation]:
    """Run, and say how it ended."""
    try:
        run.go(seconds, leg)
    except Stopped as stopped:
        say(f"STOPPED, seed {run.seed}:\n{stopped}")
        return stopped.violations
    say(f"{run.checkpoints} checkpoints, 0 violations, {run.monkey.counts.total()} faults")
    return []


def _outcome(run: Run, started: datetime, seconds: float, violations: list[Violation]) -> Outcome:
    return Outcome(
        began=started,
        seconds=seconds,
        seed=run.seed,
        postgres=run.arena.version,
        checkpoints=run.checkpoints,
        committed=run.committed,
        starts=run.starts,
        faults=dict(run.monkey.counts),
        missing=run.monkey.missing,
        measures=run.measures,
        records=_records(run),
        violations=violations,
    )


def _records(run: Run) -> Records:
    consumer, writers = run.consumer, run.load.outboxes
    return Records(
        consumer.stashed,
        consumer.found,
        consumer.late,
        consumer.repeats,
        writers.committed,
        writers.rolled_back,
        writers.longest,
    )


def say(text: str) -> None:
    """Print, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to run")
    parser.add_argument("--leg", type=float, default=180.0, help="seconds of faults before each checkpoint")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the faults")
    parser.add_argument("--folder", help="where to write; kept. By default one that goes when all is well")
    parser.add_argument("--report", type=Path, help="write the report to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
