"""A short form of the long run: a few faults, and a checkpoint."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.crash.chaos.course import Run

SECONDS = 20.0
SEED = 1
"""Its first faults are over soon."""


@pytest.mark.soak
def test_a_short_run_finds_nothing() -> None:
    # No folder of pytest's: the database server's user can't enter these when we are root.
    with tempfile.TemporaryDirectory(prefix="pytube-chaos-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        run = Run(folder, SEED, print)
        try:
            run.go(SECONDS, SECONDS)
            assert run.checkpoints == 1
            assert run.consumer.stashed > 500
        finally:
            run.close()
