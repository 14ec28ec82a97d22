"""The lock file is of this pyproject.toml, and names no place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
RELEASE_LOCK = (ROOT / ".ci" / "release.lock").read_text()
PINNED = {
    canonicalize_name(name): version
    for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", RELEASE_LOCK + "\n" + LOCK, re.MULTILINE)
}


def wanted() -> Iterator[Requirement]:
    """All that pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    for entries in lists:
        yield from (Requirement(entry) for entry in entries if isinstance(entry, str))  # else another group


@pytest.mark.parametrize("requirement", sorted(set(map(str, wanted()))))
def test_lock_satisfies(requirement: str) -> None:
    need = Requirement(requirement)
    if need.name == "pytube-pg":  # an extra that takes another one in
        return
    pinned = PINNED.get(canonicalize_name(need.name))
    assert pinned is not None, f"{need.name} is in no lock file: run make lock"
    assert need.specifier.contains(pinned, prereleases=True), f"{pinned} is locked: run make lock"


def test_lock_names_no_host() -> None:
    assert "://" not in LOCK + RELEASE_LOCK


def test_all_is_hashed() -> None:
    entries = re.split(r"\n(?=\S)", LOCK.strip())
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []
