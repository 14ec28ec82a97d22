"""The figures of the long run, and the page that it writes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.crash.chaos.invariants import Invariant, Violation
from tests.crash.chaos.measures import Measures
from tests.crash.chaos.page import NOTES, Outcome, Records, report
from tests.crash.chaos.records import Term, Window
from tests.docs.pages import BY_NAME


def test_take_overs_are_measured_from_the_last_sign_of_life() -> None:
    measures = Measures()
    terms = [
        Term("a", 1, 4, 0, 5.0, 1.0, 20.0, 24.0, "superseded"),
        Term("b", 2, 4, 0, 5.0, 24.0, 33.0, 40.0, "released"),
        Term("c", 3, 4, 0, 5.0, 41.0, 50.0),
    ]
    measures.saw(Window("live", 2.0, 3.0, terms=terms, told={"b": 25.5, "c": 41.5}))
    assert measures.takeovers == [5.5]


@pytest.mark.parametrize("violations", [[], [Violation(Invariant.EQUAL, "key 7 differs")]])
def test_the_page_says_how_it_went(violations: list[Violation]) -> None:
    measures = Measures(memory={"neli-1": [60.0, 61.0]})
    records = Records(1000, 1007, 2, {"strict": 3, "transactions": 0}, 30, 8, 59.0)
    outcome = Outcome(
        datetime(2026, 1, 1, tzinfo=UTC), 3600.0, 7, "18", 20, 5, 6, {"a fault": 3}, measures, records
    )
    outcome.violations = violations
    outcome.missing = ["another"]
    page = report(outcome)
    assert ("0 violations" in page) is (not violations)
    assert ("EQUAL: key 7 differs" in page) is bool(violations)
    assert "| a fault | 3 |" in page
    assert "| another | 0 |" in page
    assert "Never struck in this run: another." in page
    assert "60 to 61 MiB" in page
    assert "| strict 3, transactions 0 |" in page
    assert "| 30, 8, 59 s |" in page
    assert all(invariant.value in page for invariant in Invariant)


def test_the_page_of_the_last_run_has_the_text_of_the_template() -> None:
    before, _, after = NOTES.read_text().strip().partition("\n## ")
    page = BY_NAME["docs/reliability.md"].text
    assert page.startswith(f"# Reliability\n\n{before.strip()}\n\n## The last long run\n")
    checks = "\n".join(f"- {invariant.value}" for invariant in Invariant)
    assert page.endswith(f"\n\n### Checks\n\n{checks}\n\n## {after}\n")
