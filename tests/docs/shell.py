"""Runs the shell blocks of a page as somebody who follows it would, in a folder and a database."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.docs.pages import Block
from tests.helpers import cli
from tests.helpers.database import ROOT
from tests.helpers.waiting import LIMIT, wait_until

_HEREDOC = re.compile(r"<<'(\w+)'")
_PLAIN = re.compile(r"[^|&<>;]+")


class Shell:
    """Commands run one after the other; what goes on in the background is ended by `close`."""

    def __init__(self, folder: Path, dsn: str, programs: Path) -> None:
        """Args:
        folder: the working directory; it gets links to `sql` and `examples`.
        dsn: the database that `PYTUBE_DSN` names.
        programs: where psql is.
        """
        self.folder = folder
        self.dsn = dsn
        self._background: list[subprocess.Popen[str]] = []
        path = [str(Path(sys.executable).parent), str(programs), os.environ["PATH"]]
        self.environment = {**_without_ours(os.environ), "PYTUBE_DSN": dsn, "PATH": ":".join(path)}
        for name in ("sql", "examples"):
            (folder / name).symlink_to(ROOT / name)

    def run(self, block: Block) -> None:
        """Run a block of shell; an AssertionError shows what failed."""
        for command in commands_of(block.text):
            self._command(command)

    def psql(self, statements: str, **environment: str) -> str:
        """Run SQL as psql would; its output."""
        done = subprocess.run(
            ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-d", environment.pop("dsn", self.dsn)],
            check=False,
            input=statements,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment | environment,
        )
        assert done.returncode == 0, f"{statements}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def background(self, *command: str, signal: int, dsn: str) -> Iterator[subprocess.Popen[str]]:
        """Run a program with another DSN meanwhile, then end it by a signal: in order, and silently."""
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment | {"PYTUBE_DSN": dsn},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
            process.send_signal(signal)
            output, _ = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
            process.wait()
        assert (process.returncode, output) == (0, "")

    def close(self) -> None:
        """End what runs in the background, which has to end in order."""
        for process in self._background:
            process.send_signal(signal.SIGTERM)
        for process in self._background:
            output, _ = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, output
        self._background.clear()

    def _command(self, command: str) -> None:
        program, *arguments = shlex.split(command.partition("\n")[0], comments=True)
        match program:
            case "export" if arguments[0].startswith("PYTUBE_DSN="):
                pass  # ours is another one
            case "pip":
                assert arguments == ["install", ".[demo]"]
            case "python3" if arguments[:2] == ["-m", "venv"]:
                pass  # this one has all
            case "make":
                _check_make(arguments)
            case "git" | ".venv/bin/python":
                _check_python(arguments)
            case "tail":
                file = self.folder / arguments[-1]
                wait_until(lambda: file.exists() and file.stat().st_size > 0, what=command)
            case "pytube" if _PLAIN.fullmatch(command):
                cli.run(*arguments, dsn=self.dsn, folder=self.folder)
            case "pytube" if command.endswith("&"):
                self._start(command.removesuffix("&"))
            case _:
                self._bash(command)

    def _start(self, command: str) -> None:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._background.append(process)

    def _bash(self, command: str) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            check=False,
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"


def commands_of(text: str) -> Iterator[str]:
    """The commands of a block: a line each, with the here-document that follows it."""
    lines = iter(text.splitlines())
    for line in lines:
        command = line.strip()
        heredoc = _HEREDOC.search(line)
        while heredoc and not command.endswith(f"\n{heredoc[1]}"):
            command += "\n" + next(lines)
        if command and not command.startswith("#"):
            yield command


def _check_make(arguments: list[str]) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    markers = re.findall(r'^    "(\w+): ', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert arguments[0] in targets
    for argument in arguments[1:]:
        name, _, value = argument.partition("=")
        assert name in ("ARGS", "UPGRADE")
        if value.startswith("-m "):
            assert value.removeprefix("-m ") in markers


def _check_python(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        assert find_spec(arguments[1]) is not None
    else:
        assert (ROOT / arguments[-1]).exists()


def _without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if not key.startswith("PYTUBE_")}
