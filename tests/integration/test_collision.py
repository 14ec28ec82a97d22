"""Another distribution with a package `pytube` in the same environment: one sentence says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.database import ROOT

THEIRS = {
    "__init__.py": "from pytube.streams import Stream\n__version__ = '15.0.0'\n",
    "__main__.py": "from pytube.streams import Stream\n",
    "cli.py": "def main():\n    print('downloads')\n",
    "streams.py": "class Stream:\n    pass\n",
}
SENTENCE = "run `pip uninstall pytube pytube-pg`, install pytube-pg again"
ONLY_FROM = (
    "import os, sys\n"
    "sys.path[:] = [p for p in sys.path if p == {!r} or not os.path.exists(p + '/pytube/__init__.py')]\n"
)
"""Leave out the package that is under test: a whole one anywhere goes before one without `__init__.py`."""
COMMAND = "from pytube.cli import main; main()"
"""What the program `pytube` of either distribution consists of."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages with ours in it."""
    install_ours(tmp_path)
    return tmp_path


def install_ours(site: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "pytube", site / "pytube", ignore=ignored, dirs_exist_ok=True)


def install_theirs(site: Path) -> None:
    (site / "pytube").mkdir(exist_ok=True)
    for name, text in THEIRS.items():
        (site / "pytube" / name).write_text(text)


def uninstall_theirs(site: Path) -> None:
    for name in THEIRS:
        (site / "pytube" / name).unlink()


def python(site: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program that imports from there."""
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", ONLY_FROM.format(str(site)) + program],
        check=False,
        capture_output=True,
        text=True,
        cwd=site,
        env=environment,
    )


def assert_refused(site: Path, *programs: str) -> None:
    """Each program ends with the sentence, and names the folder."""
    for program in programs:
        done = python(site, program)
        assert done.returncode != 0, done.stdout
        last = done.stderr.splitlines()[-1]
        assert SENTENCE in last
        assert str(site / "pytube") in last


def test_ours_alone(site: Path) -> None:
    assert python(site, "import sys; sys.argv[1:] = ['--version']; " + COMMAND).stdout.startswith("pytube, v")


def test_theirs_after_ours(site: Path) -> None:
    install_theirs(site)
    done = python(site, COMMAND)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert_refused(site, COMMAND, "from pytube.worker import Worker", "from pytube.config import load")


def test_ours_after_theirs(tmp_path: Path) -> None:
    install_theirs(tmp_path)
    install_ours(tmp_path)
    assert_refused(tmp_path, COMMAND, "import pytube", "from pytube import YouTube")


def test_theirs_uninstalled(site: Path) -> None:
    """Together with the files that both have."""
    install_theirs(site)
    uninstall_theirs(site)
    assert_refused(site, COMMAND, "from pytube.worker import Worker")
