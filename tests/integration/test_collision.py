"""Another distribution with a package `pytube` in the same environment: one sentence says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.helpers.wheels import build_wheel, make_environment

THEIRS = {
    "__init__.py": "from pytube.version import __version__\n"
    "from pytube.streams import Stream\nfrom pytube.__main__ import YouTube\n",
    "__main__.py": "class YouTube:\n    pass\n",
    "cli.py": "from pytube import YouTube\ndef main():\n    print('downloads')\n",
    "streams.py": "class Stream:\n    pass\n",
    "version.py": "__version__ = '15.0.0'\n",
    "contrib/__init__.py": "",
}
"""As the files of the downloader are, as far as they matter here: its `__main__` makes a class, and ends."""
SENTENCE = "run `pip uninstall pytube pytube-pg`, reinstall pytube-pg, and"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Ours, and one of theirs."""
    folder = tmp_path_factory.mktemp("wheels")
    theirs = folder / "pytube-15.0.0-py3-none-any.whl"
    info = "pytube-15.0.0.dist-info"
    files = {f"pytube/{name}": text for name, text in THEIRS.items()} | {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: pytube\nVersion: 15.0.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\npytube = pytube.cli:main\n",
    }
    with zipfile.ZipFile(theirs, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD")))
    return {"pytube-pg": build_wheel(folder), "pytube": theirs}


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    make_environment(tmp_path / "env")
    return tmp_path / "env"


@pytest.fixture
def install(environment: Path, wheels: dict[str, Path]) -> Callable[..., None]:
    """Install distributions in order, or take one away."""

    def uv(verb: str, *arguments: str) -> None:
        python = ("--python", str(environment / "bin" / "python"))
        command = [sys.executable, "-m", "uv", "pip", verb, "--offline", "--quiet", *python, *arguments]
        subprocess.run(command, check=True)

    def act(*names: str, uninstall: str | None = None) -> None:
        for name in names:
            uv("install", "--no-deps", str(wheels[name]))
        if uninstall is not None:
            uv("uninstall", uninstall)

    return act


@pytest.fixture
def program(environment: Path) -> Run:
    """Runs a program of the environment."""

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(environment / "bin" / name), *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=environment,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )

    return run


def test_each_of_the_ways_to_start_it(install: Callable[..., None], program: Run) -> None:
    install("pytube-pg")
    for command in (["pytube"], ["pytube-pg"], ["python", "-m", "pytube"]):
        done = program(*command, "--version")
        assert (done.returncode, done.stdout[:9]) == (0, "pytube, v"), done


@pytest.mark.parametrize(
    ("order", "uninstalled"),
    [
        (("pytube-pg", "pytube"), None),
        (("pytube", "pytube-pg"), None),
        (("pytube-pg", "pytube"), "pytube"),
        (("pytube", "pytube-pg"), "pytube"),
    ],
)
def test_whichever_came_last_nothing_runs_as_if_all_were_well(
    environment: Path,
    install: Callable[..., None],
    program: Run,
    order: tuple[str, ...],
    uninstalled: str | None,
) -> None:
    install(*order, uninstall=uninstalled)
    imports = ("from pytube.config import load", "from pytube.worker import Worker")
    commands = [["pytube-pg", "worker"], *(["python", "-c", one] for one in imports)]
    if uninstalled is None:
        commands += [
            ["pytube", "worker"],
            ["python", "-m", "pytube", "worker"],
            ["python", "-c", "import pytube"],
            ["python", "-c", "from pytube import YouTube"],
        ]
    else:  # with the script pytube, and with pytube.__main__
        assert program("python", "-m", "pytube", "worker").returncode == 1
        assert program("pytube-pg").stderr.startswith("pytube: the distribution pytube, a video downloader,")
    for command in commands:
        done = program(*command)
        assert done.returncode in (1, 2), (command, done)
        assert SENTENCE in done.stderr.splitlines()[-1], (command, done)
        assert str(environment / "lib") in done.stderr.splitlines()[-1]


def test_what_the_sentence_says_helps(install: Callable[..., None], program: Run) -> None:
    install("pytube-pg", "pytube", uninstall="pytube")
    install(uninstall="pytube-pg")
    install("pytube-pg")
    assert program("python", "-m", "pytube", "--version").returncode == 0


def test_the_metadata_names_what_is_imported(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["pytube-pg"]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(wheel.read(name))
    assert metadata.get_all("Import-Name") == ["pytube"]
    assert metadata["Metadata-Version"] == "2.5"
