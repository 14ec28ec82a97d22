"""Another distribution with a package `pytube` in the same environment: one sentence says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.helpers.database import ROOT
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
    for name, text in THEIRS.items():
        (site / "pytube" / name).parent.mkdir(parents=True, exist_ok=True)
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
    assert_refused(site, COMMAND, "from pytube.worker import Worker", "from pytube.config import load")


def test_ours_after_theirs(tmp_path: Path) -> None:
    install_theirs(tmp_path)
    install_ours(tmp_path)
    assert_refused(tmp_path, COMMAND, "import pytube", "from pytube import YouTube")


def test_theirs_uninstalled(site: Path) -> None:
    """Together with the files that both have. The program says it in one line."""
    install_theirs(site)
    uninstall_theirs(site)
    assert python(site, COMMAND).stderr.startswith("pytube: the distribution pytube, a video downloader,")
    assert_refused(site, COMMAND, "from pytube.worker import Worker")


# --- by an installer, from wheels -----------------------------------------------------------------


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
    install: Callable[..., None], program: Run, order: tuple[str, ...], uninstalled: str | None
) -> None:
    install(*order, uninstall=uninstalled)
    commands = [["pytube-pg", "worker"], ["python", "-c", "from pytube.config import load"]]
    if uninstalled is None:
        commands += [
            ["pytube", "worker"],
            ["python", "-m", "pytube", "worker"],
            ["python", "-c", "import pytube"],
        ]
    else:  # with the script pytube, and with pytube.__main__
        assert program("python", "-m", "pytube", "worker").returncode == 1
    for command in commands:
        done = program(*command)
        assert done.returncode in (1, 2), (command, done)
        assert SENTENCE in done.stderr.splitlines()[-1], (command, done)


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
