"""A version of pytube after this one: a copy of the tree with one revision more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pytube.db.version import needed
from tests.helpers.database import ROOT

PRESENT = needed()
NEXT = f"{int(PRESENT) + 1:04}"

_MIGRATION = f"""-- {NEXT}: a remark for each tube.
ALTER TABLE :"schema".tube_registry ADD COLUMN remark text;
"""
_PYTHON = f'''"""A remark for each tube."""

from pytube.db.migrate import run_migration

revision = "{NEXT}"
down_revision = "{PRESENT}"


def upgrade() -> None:
    """Run the file of the same name in `sql/migrations`."""
    run_migration("{NEXT}_remark")
'''
_RUN = rf"""SELECT coalesce(max(version_num), '') < '{NEXT}' AS run_{NEXT} FROM :"schema".tube_version \gset
\if :run_{NEXT}
\ir migrations/{NEXT}_remark.sql
\endif
"""


class NextVersion:
    """The copy, in a folder of its own, and its program."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        for name in ("pytube", "sql", "migrations"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        self.install_sql = folder / "sql" / "install.sql"
        (folder / f"sql/migrations/{NEXT}_remark.sql").write_text(_MIGRATION)
        (folder / f"migrations/versions/{NEXT}_remark.py").write_text(_PYTHON)
        self._replace("sql/install.sql", f"set version {PRESENT}", f"set version {NEXT}")
        self._replace(
            "sql/install.sql", "\n-- Shared by all families.", f"{_RUN}\n-- Shared by all families."
        )

    def run(self, *arguments: str, dsn: str, code: int = 0) -> str:
        """Run its command line; what it said."""
        done = run_program(self.root, *arguments, dsn=dsn)
        assert done.returncode == code, done.stdout
        return done.stdout

    def _replace(self, name: str, old: str, new: str) -> None:
        path = self.root / name
        text = path.read_text()
        assert text.count(old) == 1, f"{name} has changed: {old!r}"
        path.write_text(text.replace(old, new))


def run_program(root: Path, *arguments: str, dsn: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of the pytube in `root`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTUBE_")}
    return subprocess.run(
        [sys.executable, "-m", "pytube", *arguments],
        check=False,
        text=True,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environment, "PYTHONPATH": str(root), "PYTUBE_DSN": dsn},
        timeout=120,
    )
