"""Servers that have the extension's files, as `make -C sql install` puts them there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytube.embedded.postgres import Postgres
from tests.helpers.database import ROOT, TestServer, server_folder

SQL = ROOT / "sql"


def make_install(sql: Path, *variables: str) -> str:
    """`make install` in a copy of our SQL; what it printed."""
    done = subprocess.run(
        ["make", "-C", str(sql), "install", *variables],
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@dataclass(frozen=True)
class ExtensionServer:
    """A server, and where the extension's files are to go."""

    server: TestServer
    variable: str
    """Of `make install`."""


@pytest.fixture(scope="session", params=[18, pytest.param("system", marks=pytest.mark.older_server)], ids=str)
def extended(request: pytest.FixtureRequest) -> Iterator[ExtensionServer]:
    """18 finds the files by a setting; of the machine's own we take a copy, whose folders are ours."""
    with server_folder() as folder:
        if request.param == 18:
            variable = f"EXTENSION_DIR={folder}/extension"
            server = TestServer(18, {"extension_control_path": f"$system:{folder}"})
        else:
            server = TestServer("system")
            server.postgres._bin = _copied(server.postgres, folder)
            server.postgres.restart()
            variable = f"PG_CONFIG={server.postgres.bin('pg_config')}"
        make_install(SQL, variable)
        yield ExtensionServer(server, variable)
        server.close()


def _copied(postgres: Postgres, folder: Path) -> Path:
    """The programs of a copy of an installation, which looks for its other files as from where it was."""
    programs = postgres.bin("postgres").parent
    asked = [str(postgres.bin("pg_config")), "--sharedir", "--pkglibdir"]
    shared, libraries = map(Path, subprocess.check_output(asked, text=True).split())
    root = Path(os.path.commonpath([programs, shared, libraries]))
    for path in (programs, shared):
        shutil.copytree(path, folder / path.relative_to(root))
    (folder / libraries.relative_to(root)).symlink_to(libraries)
    return folder / programs.relative_to(root)
