"""Each seeded bug quotes the code of today: a change of the code is seen here, within a second."""

from __future__ import annotations

import ast

import pytest

from tests.crash.seeded import (
    bugs_of_capture,
    bugs_of_delivery,
    bugs_of_hosts,
    bugs_of_outboxes,
    bugs_of_sql,
    bugs_of_terms,
)
from tests.crash.seeded.seed import Seed
from tests.helpers.database import ROOT

SEEDS = [
    *bugs_of_capture.SEEDS,
    *bugs_of_delivery.SEEDS,
    *bugs_of_hosts.SEEDS,
    *bugs_of_outboxes.SEEDS,
    *bugs_of_sql.SEEDS,
    *bugs_of_terms.SEEDS,
]


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
def test_a_seed_fits_the_code(seed: Seed) -> None:
    text = (ROOT / seed.file).read_text()
    assert text.count(seed.old) == 1, f"bring the seed up to date: {seed.file} has not this once:\n{seed.old}"
    changed = text.replace(seed.old, seed.new)
    assert changed != text
    if seed.file.endswith(".py"):
        ast.parse(changed)
    for test in seed.tests:
        file, _, name = test.partition("::")
        source = (ROOT / "tests" / file).read_text()
        assert f"def {name.split('[')[0]}" in source, f"{seed.name} names a test that is not there: {test}"
