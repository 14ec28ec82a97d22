"""What is run first is there."""

from __future__ import annotations

from tests.conftest import LONGEST
from tests.helpers.database import ROOT


def test_files_that_are_run_first_are_there() -> None:
    assert [name for name in LONGEST if name.endswith(".py") and not (ROOT / name).exists()] == []
