"""The page of commands, from click."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import click

from pytube.cli.examples import EXAMPLES
from pytube.cli.program import EXIT_CODES, GROUPS, Later, cli
from tests.docs.reference.markdown import code, codes, sentence, table

DATABASE = ("--dsn", "--schema", "--host")
"""Options of nearly all commands, which are described once."""
SHARED = ("--json", "--yes")
"""Options of many commands, which are described once, too; of a command its usage has them."""
_METAVARS = {"INTEGER": "N", "INTEGER RANGE": "N", "FLOAT": "NUMBER", "FLOAT RANGE": "NUMBER"}
_DEFAULT = re.compile(r"\s*\[default(?: ([\w -]+))?: ([^;\]]*)[^\]]*\]")

Words = tuple[str, ...]


def all_commands() -> dict[str, list[tuple[Words, click.Command]]]:
    """The commands that do something, each with its words, by heading."""
    return {
        heading: [found for name in names for found in _leaves((name,), cli.commands[name])]
        for heading, names in GROUPS.items()
    }


def _leaves(words: Words, command: click.Command) -> Iterator[tuple[Words, click.Command]]:
    command = command.load() if isinstance(command, Later) else command
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name, each in command.commands.items():
        yield from _leaves((*words, name), each)


def parts() -> Mapping[str, str]:
    """The tables of shared options, the exit codes, and the sections of the commands."""
    by_heading = all_commands()
    every = [command for commands in by_heading.values() for _, command in commands]
    return {
        "global": _options([one for one in _shown(cli) if one.name != "help"], cli),
        "shared": _shared(every),
        "without_database": f"{_without_database(by_heading)} do not take `--dsn`, `--schema`, and `--host`.",
        "exit_codes": _exit_codes(),
        "commands": "\n\n".join(
            "\n\n".join([f"## {heading}", *(_section(*one) for one in commands)])
            for heading, commands in by_heading.items()
        ),
    }


def _exit_codes() -> str:
    rows = re.findall(r"^  ([\d, ]*\d)  (.*)$", EXIT_CODES, re.MULTILINE)
    return table(("exit code", "meaning"), [(code, sentence(text)) for code, text in rows])


def _shown(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option) and not one.hidden]


def _shared(every: list[click.Command]) -> str:
    """The options that several commands share, as the first one has them."""
    found: dict[str, click.Option] = {}
    for command in every:
        for option in _shown(command):
            found.setdefault(option.opts[0], option)
    return _options([found[name] for name in (*DATABASE, *SHARED)], cli)


def _section(words: Words, command: click.Command) -> str:
    name = " ".join(words)
    context = click.Context(command, info_name=name)
    arguments = [part for part in command.collect_usage_pieces(context) if part != "[OPTIONS]"]
    options = _shown(command)
    shared = [f"[{one.opts[0]}]" for one in options if one.opts[0] in SHARED]
    own = [one for one in options if one.opts[0] not in (*SHARED, *DATABASE)]
    page, calls = EXAMPLES[name]
    usage = " ".join(["pytube", name, *arguments, *shared])
    example = " ".join(["pytube", name, calls[-1]]).strip()
    shown = f" Example: `{example}`." if calls[-1] else ""
    return "\n\n".join(
        part
        for part in (
            f"### {name}",
            f"`{usage}`: {' '.join((command.help or '').split())}{shown} [More]({page})",
            _options(own, command),
        )
        if part
    )


def _without_database(by_heading: Mapping[str, list[tuple[Words, click.Command]]]) -> str:
    """The commands that use no database, or take theirs from the file."""
    every = [one for commands in by_heading.values() for one in commands]
    return codes(
        " ".join(words)
        for words, command in every
        if not {option.opts[0] for option in _shown(command)} & set(DATABASE)
    )


def _options(options: list[click.Option], command: click.Command) -> str:
    """A list of them: a table would be wider than pages are."""
    return "\n".join(_option(one, click.Context(command)) for one in options)


def _option(option: click.Option, context: click.Context) -> str:
    """The option with its value, its help, and its default."""
    record = option.get_help_record(context)
    assert record is not None
    names = " / ".join([*option.opts, *option.secondary_opts])
    metavar = "" if option.is_flag else option.make_metavar(context)
    metavar = _METAVARS.get(metavar, metavar).strip("[]")
    text = sentence(_DEFAULT.sub("", option.help or ""))
    if bounds := re.search(r"([\d.]+)<=x<=([\d.]+)", record[1]):
        text += f" {bounds[1]} to {bounds[2]}."
    if option.envvar and option.show_envvar:
        text += f" Or set `{option.envvar}`."
    defaults = [
        f" Default{f' {when}' if when else ''}: {value}." for when, value in _DEFAULT.findall(record[1])
    ]
    required = " Required." if option.required else ""
    return f"- {code(f'{names} {metavar}'.strip())}: {text}{''.join(defaults)}{required}"
