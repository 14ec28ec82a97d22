"""The wheel and the sdist of this repository, and environments to install it into."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.helpers.database import ROOT


def build_wheel(folder: Path) -> Path:
    """Build it into a folder."""
    return build(folder, "wheel")


def build(folder: Path, target: str) -> Path:
    """Build the `wheel` or the `sdist` into a folder."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("pytube_pg-*")
    return path


def make_environment(folder: Path) -> Path:
    """An environment that has all packages of ours but pytube; its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # What a .pth file there names, an editable install of ours for one, is not followed from here.
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return site
