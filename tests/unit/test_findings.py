"""Findings of a refusal: what is wrong, and the remedy."""

from __future__ import annotations

import pytest

from pytube.health.findings import refused


@pytest.mark.parametrize(
    ("text", "finding", "remedy"),
    [
        ("it is wrong; correct it", "it is wrong", "correct it"),
        ("a; b; correct it", "a; b", "correct it"),
        ("denied; as the owner, run: GRANT a; GRANT b", "denied", "as the owner, run: GRANT a; GRANT b"),
        ("it is wrong", "it is wrong", "look"),
    ],
)
def test_a_refusal_is_a_finding_and_a_whole_remedy(text: str, finding: str, remedy: str) -> None:
    check = refused("x", text, "look")
    assert (check.finding, check.remedy) == (finding, remedy)
