"""The command line in tests: through click's runner, or as a process."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import struct
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from pytube.cli.program import Later, cli
from tests.helpers import forked
from tests.helpers.armed import module
from tests.helpers.forked import Piped


def run(*arguments: str, dsn: str | None = None, code: int = 0, folder: Path | None = None) -> Result:
    """Run a command in this process, and check that it exits with `code`.

    The configuration is `pytube.toml` in `folder`, where there is one.
    """
    config = None if folder is None else folder / "pytube.toml"
    named = str(config) if config is not None and config.exists() else None
    environment = {"PYTUBE_DSN": dsn, "PYTUBE_SCHEMA": None, "PYTUBE_CONFIG": named}
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        result = CliRunner().invoke(cli, arguments, env=environment)
    finally:
        # The command has set up logging to a stream that is gone now.
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
    assert result.exit_code == code, f"exit code {result.exit_code}:\n{result.output}\n{result.exception!r}"
    assert "Traceback" not in result.output
    return result


def commands() -> dict[str, click.Command]:
    """Every command and every group of the program, by its words."""
    found: dict[str, click.Command] = {}
    waiting: list[tuple[str, click.Command]] = [*cli.commands.items()]
    while waiting:
        words, listed = waiting.pop(0)
        found[words] = command = listed.load() if isinstance(listed, Later) else listed
        if isinstance(command, click.Group):
            waiting += [(f"{words} {name}", inner) for name, inner in command.commands.items()]
    return found


def leaves() -> set[str]:
    """The words of each command of the program that is no group."""
    return {words for words, command in commands().items() if not isinstance(command, click.Group)}


def run_json(*arguments: str, dsn: str | None = None, code: int = 0, folder: Path | None = None) -> Any:
    """As `run`, with `--json`; what it printed, decoded."""
    return json.loads(run(*arguments, "--json", dsn=dsn, code=code, folder=folder).stdout)


def start(*arguments: str, config: Path | None, **environment: str) -> Piped:
    """Start the program as a process, armed if `environment` asks for a fault; its output goes to pipes."""
    named = [] if config is None else ["--config", str(config)]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTUBE_")}
    return forked.start_piped(
        module(environment), [*named, *arguments], environment={**inherited, **environment}
    )


def run_in_terminal(*arguments: str, dsn: str, width: int) -> list[str]:
    """Run the program as a process in a terminal of this width; the lines that it shows, without colors."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "PYTUBE_CONFIG")}
    with os.fdopen(theirs, "wb") as output:
        process = forked.start(
            "pytube", arguments, environment=environment | {"PYTUBE_DSN": dsn, "TERM": "xterm"}, output=output
        )
    shown = b""
    with suppress(OSError):  # how the end of a terminal is told
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    process.wait()
    return click.unstyle(shown.decode()).splitlines()
