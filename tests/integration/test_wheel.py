"""The wheel carries what an installation from it needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_wheel_carries_sql_and_migrations(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("pytube_pg-*.whl")
    carried = set(zipfile.ZipFile(wheel).namelist())
    expected = {"pytube/py.typed", "pytube/__init__.py"}
    for folder in ("sql", "migrations"):
        files = [
            path for path in (ROOT / folder).rglob("*") if path.suffix in {".sql", ".py", ".ini", ".mako"}
        ]
        expected |= {f"pytube/_resources/{path.relative_to(ROOT).as_posix()}" for path in files}
    assert expected - carried == set()
    assert not any(name.startswith("tests/") for name in carried)
