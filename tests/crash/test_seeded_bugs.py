"""The tests are tested: each seeded bug, planted in a copy of the tree, makes one of them fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.seeded import (
    bugs_of_delivery,
    bugs_of_hosts,
    bugs_of_outboxes,
    bugs_of_sql,
    bugs_of_terms,
)
from tests.crash.seeded.seed import Seed, copy_tree, failures
from tests.helpers.database import ROOT

SEEDS = [
    *bugs_of_delivery.SEEDS,
    *bugs_of_hosts.SEEDS,
    *bugs_of_outboxes.SEEDS,
    *bugs_of_terms.SEEDS,
    *bugs_of_sql.SEEDS,
]
EACH_TIME = {
    "purge_before_acknowledge",
    "blocked_key_flies",
    "send_without_trust",
    "missing_row_is_no_delete",
    "put_off_is_done",
    "trust_by_the_wall_clock",
    "full_disk_is_the_documents_fault",
    "record_sent_without_trust",
    "order_lost_after_a_failure",
    "trust_from_receipt",
    "terminated_session_is_used",
    "proof_without_the_partition",
    "purge_of_any_terms_pods",
    "leave_of_a_row_filter",
}
"""Some of each part, found by tests that are over at once. All of them are planted by `make points`: a seed
checks a test, which has changed less often than the code that `make test` checks."""


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, id=seed.name, marks=[] if seed.name in EACH_TIME else [pytest.mark.soak])
        for seed in SEEDS
    ],
)
def test_a_seeded_bug_is_found(seed: Seed, tmp_path: Path) -> None:
    copy_tree(tmp_path)
    seed.plant(tmp_path)
    failed, output = failures(tmp_path, seed.tests, long=seed.slow)
    assert failed, f"{seed.breaks}, and no test fails:\n{output}"


def test_names_are_unique() -> None:
    assert len({seed.name for seed in SEEDS}) == len(SEEDS) >= 20
    assert {seed.name for seed in SEEDS if not seed.slow} > EACH_TIME


def test_each_fits_the_code_and_its_tests_are_there() -> None:
    for seed in SEEDS:
        assert seed.patched(ROOT) != (ROOT / seed.file).read_text(), seed.name
        for test in seed.tests:
            file, _, name = test.partition("::")
            text = (ROOT / "tests" / file).read_text()
            assert f"def {name.rpartition('::')[2]}" in text, (seed.name, test)


def test_a_tree_that_was_not_patched_passes(tmp_path: Path) -> None:
    """What the copies lack makes no test fail."""
    copy_tree(tmp_path)
    tests = ("unit/test_election_lease.py", "sql/test_leader.py::test_release_is_told_once")
    failed, output = failures(tmp_path, tests)
    assert not failed
    assert " passed" in output, output
    assert (tmp_path / ".hypothesis").exists(), "or one seed would be found by what failed for another"


@pytest.mark.parametrize("old", ["no such text", "import"])
def test_a_patch_that_does_not_fit_is_an_error(tmp_path: Path, old: str) -> None:
    copy_tree(tmp_path)
    seed = Seed("misfit", "nothing", "pytube/worker/tube_worker.py", old, "", ())
    with pytest.raises(AssertionError, match="bring the seed up to date"):
        seed.plant(tmp_path)
