"""What a type checker says of a program that uses pytube, installed from the wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from inspect import isclass
from pathlib import Path

import pytube
from pytube import errors
from tests.docs.pages import PAGES
from tests.helpers.database import ROOT
from tests.helpers.wheels import build_wheel, make_environment

RIGHT = """
from typing import assert_type

import pytube
from pytube import Config, Worker
from pytube.admin import Pods, list_pods
from pytube.delivered import Delivered
from pytube.errors import {errors}
from pytube.model import OK, Batch, Result
from pytube.outbox import Message, stash
from pytube.sinks import SinkOptions
from pytube.testing import SinkContract as Suite
from pytube.transforms import DELETE, KEEP, Change


def read_my_write(dsn: str) -> str:
    try:
        return str(assert_type(pytube.wait("t", dsn=dsn, timeout=5), Delivered).seq)
    except pytube.KeysParked as parked:
        return str(parked)
    except pytube.WaitTimeout as late:
        assert_type(late, pytube.WaitTimeout)
        return str(late)


async def serve(config: Config) -> None:
    worker = Worker(config)
    await worker.start()
    await pytube.wait_async("t", dsn="")
    await worker.stop()
"""
WRONG = """
import pytube
from pytube import nothing_like_that

pytube.totally_wrong
pytube.wait(7, dsn="")
pytube.Worker("pytube.toml")
"""


def documented_errors() -> list[str]:
    """The errors that our pages name."""
    text = "\n".join(page.text for page in PAGES)
    return sorted(
        name
        for name, value in vars(errors).items()
        if isclass(value) and issubclass(value, Exception) and re.search(rf"`[a-z.]*{name}`", text)
    )


def test_a_consumers_program_is_checked(tmp_path: Path) -> None:
    """Strictly, by mypy, in an environment of its own: what is right passes, each wrong name fails."""
    environment, program = tmp_path / "env", tmp_path / "program"
    site = make_environment(environment)
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        wheel.extractall(site)
    program.mkdir()
    (program / "right.py").write_text(RIGHT.format(errors=", ".join(documented_errors())))
    (program / "wrong.py").write_text(WRONG)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            f"--python-executable={environment}/bin/python",
            # Kept, because most of the time goes to other packages; what has another text is checked again.
            f"--cache-dir={ROOT}/.mypy_cache/consumer",
            "right.py",
            "wrong.py",
        ],
        cwd=program,
        check=False,
        capture_output=True,
        text=True,
    )
    assert [line.partition(": error: ")[2] for line in done.stdout.splitlines() if ": error: " in line] == [
        'Module "pytube" has no attribute "nothing_like_that"  [attr-defined]',
        'Module has no attribute "totally_wrong"  [attr-defined]',
        'Argument 1 to "wait" has incompatible type "int"; expected "str | Sequence[str]"  [arg-type]',
        'Argument 1 to "Worker" has incompatible type "str"; expected "Config"  [arg-type]',
    ], done.stdout + done.stderr
    assert "right.py" not in done.stdout


def test_what_the_package_offers_is_there() -> None:
    for name in pytube.__all__:
        assert getattr(pytube, name) is not None
    assert {"KeysParked", "WaitTimeout"} <= set(documented_errors())
    assert (pytube.KeysParked, pytube.WaitTimeout) == (errors.KeysParked, errors.WaitTimeout)
