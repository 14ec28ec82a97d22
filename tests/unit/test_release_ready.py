"""Before a release: what the project has to say of itself. A placeholder is as bad as nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytube import __version__
from tests.helpers.database import ROOT

URLS = """
[project.urls]
Documentation = "https://pytube.dev/docs"
Issues = "https://pytube.dev/issues"
Repository = "https://pytube.dev/code"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project, as it is when all is said."""
    for name in ("pyproject.toml", "CHANGELOG.md", "SECURITY.md"):
        shutil.copy(ROOT / name, tmp_path)
    pyproject = (tmp_path / "pyproject.toml").read_text().partition("[project.urls]")[0]
    (tmp_path / "pyproject.toml").write_text(pyproject + URLS)
    changes = (tmp_path / "CHANGELOG.md").read_text()
    (tmp_path / "CHANGELOG.md").write_text(
        changes.replace(f"{__version__}, unreleased", f"{__version__}, 2027-01-02")
    )
    (tmp_path / "SECURITY.md").write_text("Report a vulnerability to security@pytube.dev.\n")
    return tmp_path


def lacks(folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "ready"), str(folder)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == bool(done.stderr), done.stderr
    return done.stderr.splitlines()


def test_all_is_said(project: Path) -> None:
    assert lacks(project) == []


@pytest.mark.parametrize(
    ("file", "before", "after", "sentence"),
    [
        ("CHANGELOG.md", ", 2027-01-02", ", unreleased", "CHANGELOG.md has no date for"),
        ("pyproject.toml", URLS, "", "names no Documentation, Issues, Repository in [project.urls]"),
        ("pyproject.toml", "Issues", "Bugs", "names no Issues in [project.urls]"),
        (
            "pyproject.toml",
            "https://pytube.dev/code",
            "https://example.com/code",
            "Repository is https://example.com",
        ),
        ("pyproject.toml", "https://pytube.dev/code", "https://git.<owner>.dev/code", "a placeholder"),
        ("pyproject.toml", "https://pytube.dev/code", "TODO", "a placeholder"),
        ("SECURITY.md", "security@pytube.dev", "the maintainers", "SECURITY.md has no contact"),
        ("SECURITY.md", "security@pytube.dev", "security@example.org", "SECURITY.md has no contact"),
    ],
)
def test_what_is_missing_is_named(project: Path, file: str, before: str, after: str, sentence: str) -> None:
    text = (project / file).read_text()
    assert before in text
    (project / file).write_text(text.replace(before, after, 1))
    (said,) = lacks(project)
    assert sentence in said
