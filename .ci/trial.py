"""`.ci/trial.py [--all] WHEEL [PYTHON…]`: install a wheel in fresh environments, and try it there.

With every Python of the classifiers, without extras, with each, and with all of them, in the lowest and the
newest versions that pyproject.toml allows and that have wheels. `smoke.py` is what is run. An interpreter is
one that uv finds, or downloads; with --all, each has to be had. As many Pythons at once as there are cores.
UV_FIND_LINKS is a folder with wheels of PySpark, which publishes none.

The sdist needs none of this: the wheel is built from it (`.ci/release`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv/bin"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
EXTRAS = sorted(PROJECT["optional-dependencies"])
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}


def uv(*arguments: str | Path) -> None:
    """Run uv; `CalledProcessError` has what it said."""
    try:
        subprocess.run([BIN / "uv", *arguments, "--quiet"], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr)
        raise


# --- what there is to try ---------------------------------------------------------------------


def why_not(python: str, folder: Path) -> str | None:
    """Why there is no such interpreter, nor one to download; None: there is."""
    try:
        uv("venv", "--python", python, folder)
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip().splitlines()[-1].strip()
    return None


CASES = {"all extras": EXTRAS, "no extra": [], **{extra: [extra] for extra in EXTRAS}}
"""The name, and the extras, of each environment; the first one fills uv's cache."""


@contextmanager
def database() -> Iterator[str]:
    """A Postgres of its own."""
    command: list[str | Path] = [BIN / "pytube", "dev", "postgres", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            yield json.loads(server.stdout.readline())["address"]
        finally:
            server.terminate()


# --- one environment ----------------------------------------------------------------------------


def resolve(python: str, resolution: str, to: Path) -> None:
    """Write the versions: only those with wheels."""
    uv(
        *("pip", "compile", "--python-version", python, "--resolution", RESOLUTIONS[resolution]),
        *("--only-binary", ":all:", "--all-extras", ROOT / "pyproject.toml", "--output-file", to),
    )


def install(python: str, wheel: Path, extras: list[str], versions: Path, folder: Path) -> None:
    """Make the environment `folder`."""
    uv("venv", "--python", python, "--clear", folder)
    asked = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    how = ["--only-binary", ":all:"] + ([] if extras == EXTRAS else ["--offline"])
    uv("pip", "install", "--python", folder, "--constraints", versions, *how, asked)


def smoke(environment: Path, extras: list[str], dsn: str, bytecode: Path) -> None:
    """Run the script in a folder of its own, with nothing of the checkout in its way."""
    ours = ("PYTHON", "PYTUBE", "VIRTUAL")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ |= {"PYTUBE_DSN": dsn, "PYTHONPYCACHEPREFIX": str(bytecode)}
    with tempfile.TemporaryDirectory() as folder:
        # For root, servers of the demo run as another user; elsewhere two demos would meet.
        Path(folder).chmod(0o755)
        script = shutil.copy(ROOT / ".ci/smoke.py", folder)
        # Isolated, it does not see the variable, but what it runs does.
        python = [str(environment / "bin/python"), "-I", "-X", f"pycache_prefix={bytecode}"]
        subprocess.run(
            [*python, script, *extras], check=True, capture_output=True, text=True, cwd=folder, env=environ
        )


def size(folder: Path) -> float:
    """Megabytes of its files."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(path.stat().st_size for path in files) / 1e6


def try_one(python: str, resolution: str, wheel: Path, dsn: str, work: Path) -> Iterator[str]:
    """Try the environments of one Python and one resolution; the names of those that fail."""
    versions = work / f"{python}-{resolution}.txt"
    resolve(python, resolution, versions)
    # At one place all of them, so that each module is compiled once.
    folder, bytecode = work / f"{python}-{resolution}", work / f"{python}-{resolution}-bytecode"
    for name, extras in CASES.items():
        began = time.monotonic()
        said = "ok"
        try:
            install(python, wheel, extras, versions, folder)
            smoke(folder, extras, dsn, bytecode)
        except subprocess.CalledProcessError as error:
            said = f"FAILED\n{error.stdout}{error.stderr}"
            yield f"Python {python}, {resolution} versions, {name}"
        seconds = time.monotonic() - began
        print(f"{python} {resolution} {name}: {size(folder):.0f} MB, {seconds:.0f} s: {said}", flush=True)
    shutil.rmtree(folder)
    shutil.rmtree(bytecode)


def try_all(python: str, wheel: Path, work: Path) -> list[str]:
    """Try the environments of one Python, with a database of its own; the names of those that fail."""
    with database() as dsn:
        return [name for each in RESOLUTIONS for name in try_one(python, each, wheel, dsn, work)]


def main() -> int:
    """Try all; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("pythons", nargs="*", default=PYTHONS)
    asked: Any = parser.parse_args()
    wheel = asked.wheel.resolve()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        lacking = {python: why for python in asked.pythons if (why := why_not(python, work / python))}
        for python, why in lacking.items():
            print(f"not tried: Python {python} (no interpreter: {why})", flush=True)
        if asked.all and lacking:
            return 1
        found = [python for python in asked.pythons if python not in lacking]
        with ThreadPoolExecutor(os.cpu_count()) as cores:
            tried = cores.map(lambda python: try_all(python, wheel, work), found)
            failed = [name for names in tried for name in names]
    for name in failed:
        print(f"failed: {name}")
    print(f"tried: Python {', '.join(found) or 'none'}; not tried: {', '.join(lacking) or 'none'}")
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
