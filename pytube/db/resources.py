"""Where our SQL files and migrations are: in the wheel, or in the repository."""

from __future__ import annotations

from pathlib import Path

import pytube
from pytube.errors import PytubeError

_PACKAGE = Path(pytube.__file__).parent


def sql_dir() -> Path:
    """The folder of `install.sql`."""
    return _folder("sql")


def migrations_dir() -> Path:
    """The folder of Alembic's environment."""
    return _folder("migrations")


def _folder(name: str) -> Path:
    for parent in (_PACKAGE / "_resources", _PACKAGE.parent):
        if (parent / name).is_dir():
            return parent / name
    raise PytubeError(
        f"the folder {name}/ is neither in the package {_PACKAGE} nor beside it; "
        "install pytube again from a complete wheel"
    )
