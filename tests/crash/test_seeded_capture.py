"""Each mutation of the triggers is found by the state machine that writes against a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.seeded.bugs_of_capture import SEEDS
from tests.crash.seeded.seed import Seed, copy_tree, failures


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
def test_a_mutation_is_found(seed: Seed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTUBE_EXAMPLES", "400")
    monkeypatch.setenv("PYTUBE_NO_SHRINK", "1")
    copy_tree(tmp_path)
    seed.plant(tmp_path)
    failed, output = failures(tmp_path, seed.tests)
    assert failed, f"{seed.breaks}, and the state machine does not find it:\n{output}"


def test_each_mutation_fits() -> None:
    assert len({seed.name for seed in SEEDS}) == len(SEEDS) >= 10
