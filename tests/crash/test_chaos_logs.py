"""The workers' logs, as the long run reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.chaos.log import Log, is_grave, moment_of


def test_a_log_is_read_as_it_grows(tmp_path: Path) -> None:
    log = Log(tmp_path / "worker.log")
    assert log.news() == []
    log.path.write_text('{"event": "one"}\n{"event"')
    assert log.news() == [{"event": "one"}]
    with log.path.open("a") as file:
        file.write(': "two"}\npytube: a sentence\n')
    assert log.news() == [{"event": "two"}, {"text": "pytube: a sentence"}]


@pytest.mark.parametrize(
    ("entry", "grave"),
    [
        ({"level": "error"}, True),
        ({"text": "Traceback (most recent call last):"}, True),
        ({"level": "warning"}, False),
        ({"level": "error", "event": "terms_fail", "reason": "DatabaseUnavailable: it is down"}, False),
        ({"level": "error", "event": "terms_fail", "reason": "KeyError: 7"}, True),
        ({"text": "pytube: Postgres is not available"}, False),
    ],
)
def test_what_is_grave(entry: dict[str, Any], grave: bool) -> None:
    assert is_grave(entry) is grave


def test_the_moment_of_an_entry() -> None:
    assert moment_of({"timestamp": "1970-01-01T00:01:00.5Z"}) == 60.5
