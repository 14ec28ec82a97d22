"""A state of `pytube verify` that another version wrote: never used, replaced only if it is of the tube."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytube.errors import ConfigError
from pytube.verify.report import Progress, Report


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Of a run of the tube t."""
    path = tmp_path / "state.json"
    Progress("mine", Report("t", compared=7)).save(path)
    return path


def of_version(state: Path, **changes: Any) -> str:
    """Make it the state of another version, which may keep anything else in it, and seal it otherwise."""
    value = json.loads(state.read_text()) | {
        "pytube_verify": "99.0",
        "checksum": "of another kind",
        **changes,
    }
    state.write_text(json.dumps(value))
    return state.read_text()


def test_one_of_this_tube_is_not_used_and_that_is_said(state: Path) -> None:
    text, said = of_version(state), list[str]()
    assert Progress.load(state, "t", "mine", said.append) is None
    assert said[0].startswith(f"{state} is of pytube 99.0, and this is ")
    assert said[0].endswith(": starting over")
    assert state.read_text() == text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"content": {"report": {"tube": "other"}}}, "keeps where a run of tube 'other' stopped"),
        ({"content": {"rapport": {}}}, "is of pytube 99.0, and does not name its tube"),
        ({"content": None}, "does not name its tube"),
        ({"content": {"report": {"tube": 5}}}, "does not name its tube"),
    ],
)
def test_one_of_another_tube_or_of_none_is_refused_and_kept(
    state: Path, changes: dict[str, Any], why: str
) -> None:
    text = of_version(state, **changes)
    with pytest.raises(ConfigError, match=why) as refused:
        Progress.load(state, "t", "mine", lambda _: None)
    assert str(refused.value).endswith("remove it, or name another by --state")
    assert state.read_text() == text
