"""Which tests one process runs, and which come first: `make test` starts a slow server once."""

from __future__ import annotations

import re

from tests.conftest import LONGEST, TESTS, scope_of
from tests.helpers.database import ROOT


def test_files_that_are_run_first_are_there() -> None:
    assert [name for name in LONGEST if name.endswith(".py") and not (ROOT / name).exists()] == []


def test_one_process_has_all_tests_with_opensearch() -> None:
    fixture = re.compile(r"\b(real_opensearch|opensearch: SearchServer)\b|getfixturevalue\(.*opensearch")
    users = [
        str(file.relative_to(ROOT))
        for file in sorted(TESTS.rglob("test_*.py"))
        if fixture.search(file.read_text()) and file.name != "test_scopes.py"
    ]
    assert len(users) > 5
    assert {file: scope_of(f"{file}::test") for file in users} == dict.fromkeys(users, "opensearch")
