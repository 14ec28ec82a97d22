"""Each command that a message of ours names is there, and takes the options that it is given.

That the role which docs/security.md names for it may run it, tests/integration/test_cli_roles.py looks at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pytube.cli.program import Later, cli
from pytube.errors import on_host
from tests.helpers.database import ROOT

PROSE = {
    *("admin", "again", "cli", "filling", "fleet", "has"),
    *(
        "and",
        "documents",
        "here",
        "in",
        "installed?",
        "is",
        "listener",
        "looks",
        "refuses",
        "relations",
        "sets",
        "tracing",
    ),
}
"""Words that follow the name of the program where it is no command."""
VALUE = "X"
"""Stands for what is filled in."""
SOURCES = [*sorted((ROOT / "pytube").rglob("*.py")), ROOT / "deploy/alerts.yml"]


def texts(path: Path) -> Iterator[str]:
    """What it may say; docstrings left out."""
    if path.suffix == ".yml":
        yield from re.sub(r"\{\{.*?\}\}", VALUE, path.read_text()).splitlines()
        return
    tree = ast.parse(path.read_text())
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        if isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield node.value


def named(path: Path) -> Iterator[list[str]]:
    """The words of each command that it names, and perhaps what follows them."""
    for text in texts(path):
        for found in re.findall(r"(?<![\w./-])pytube ([a-z][^`;,:()\n\"']*)", text):
            words = re.sub(r"\.$", "", re.split(r"\. ", found)[0]).split()
            if words[0] not in PROSE:
                yield words


def wrong_with(words: list[str]) -> str | None:
    """Why there is no such command; None: there is."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        if not words or words[0] == VALUE or not (found := command.commands.get(words[0])):
            return f"{command.name} has no {words[:1]}" if words and words[0] != VALUE else None
        command, words = found.load() if isinstance(found, Later) else found, words[1:]
    options = {name: one for one in command.params if isinstance(one, click.Option) for name in one.opts}
    options |= {name: one for one in options.values() for name in one.secondary_opts}
    room = [one for one in command.params if isinstance(one, click.Argument)]
    while words:
        word, words = words[0], words[1:]
        if word.startswith("--"):
            if word == f"--{VALUE}":
                break
            if word not in options:
                return f"no option {word}"
            words = words if options[word].is_flag else words[1:]
        elif room:
            room = room if room[0].nargs == -1 else room[1:]
        else:
            break  # the sentence goes on
    return None


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_are_named_are_there(path: Path) -> None:
    wrong = [(words, why) for words in named(path) if (why := wrong_with(words)) is not None]
    assert wrong == []


def commands(command: click.Command = cli, path: str = "pytube") -> Iterator[tuple[str, click.Command]]:
    command = command.load() if isinstance(command, Later) else command
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name, one in command.commands.items():
        yield from commands(one, f"{path} {name}")


READ_ALL = {"pytube status", "pytube doctor", "pytube top", "pytube web"}
"""Commands that read all hosts where none is named."""


def test_a_command_that_asks_for_the_host_has_it_where_several_are_configured() -> None:
    for path, command in commands():
        asks = path not in READ_ALL and any("--host" in one.opts for one in command.params)
        said = f"run `{path} x`, then {path}"
        name = path.removeprefix("pytube ")
        with_host = f"run `pytube --host 'a b' {name} x`, then pytube --host 'a b' {name}"
        assert on_host(said, "a b") == (with_host if asks else said)
        assert on_host(said, None) == said
    assert on_host("pytube installs the pytube outboxes", "a") == "pytube installs the pytube outboxes"


def test_a_wrong_one_is_found() -> None:
    assert wrong_with(["outbox", "parked", "retry", "X", "--all"]) is None
    assert wrong_with(["outbox", "parked", "retry", "X", "--everything"]) == "no option --everything"
    assert wrong_with(["outbox", "repair", "X"]) == "outbox has no ['repair']"
    named_at_all = [words for path in SOURCES for words in named(path)]
    assert len(named_at_all) > 80
