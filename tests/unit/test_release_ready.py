"""Before a release: what the project has to say of itself, and what is tried. A placeholder says nothing."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import tomllib
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


def test_each_extra_is_tried() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert runpy.run_path(str(ROOT / ".ci/smoke.py"))["EXTRAS"].keys() == extras.keys()


def test_no_release_without_an_interpreter() -> None:
    command = [sys.executable, str(ROOT / ".ci/trial.py"), "--all", "no.whl", "3.99"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "not tried: Python 3.99 (no interpreter: " in done.stdout, done.stderr


@pytest.mark.parametrize("first", ["python3", "python3.12"])
def test_the_environment_has_the_python_of_the_path(tmp_path: Path, first: str) -> None:
    """Otherwise a workflow would test the machine's Python in place of the one that it set up."""
    for name in ("python3", "python3.12"):
        recent = "exit 0" if name in {first, "python3.12"} else "exit 1"
        (tmp_path / name).write_text(f"#!/bin/sh\n{recent}\n")
        (tmp_path / name).chmod(0o755)
    function = (ROOT / ".ci/venv").read_text().partition("\n# The machine's own pip")[0].partition("\nOLDEST")
    script = f"OLDEST{function[2]}\nfind_python"
    assert (
        subprocess.check_output(["/bin/bash", "-c", script], text=True, env={"PATH": str(tmp_path)})
        == f"{first}\n"
    )
