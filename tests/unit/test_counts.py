"""Numbers of things in sentences."""

from __future__ import annotations

import pytest

from pytube.counts import is_or_are, name_partitions, say_count


def test_one_and_several() -> None:
    said = [f"{say_count(number, 'document')} {is_or_are(number)} touched" for number in (0, 1, 2)]
    assert said == ["0 documents are touched", "1 document is touched", "2 documents are touched"]


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ([3], "partition 3"),
        ([1, 0], "partitions 0, 1"),
        ([0, 1, 2], "partitions 0 to 2"),
        ([0, 2, 3, 4, 7], "partitions 0, 2 to 4, 7"),
    ],
)
def test_which_partitions(numbers: list[int], named: str) -> None:
    assert name_partitions(numbers) == named
