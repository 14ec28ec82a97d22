"""The page of commands, from click."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import click

from pytube.cli.program import EXAMPLES, GROUPS, Later, cli, exit_codes
from tests.docs.reference.markdown import code, codes, sentence, table

DATABASE = ("--dsn", "--schema", "--host")
_MOST = (*DATABASE, "--json")
"""Options of nearly all commands, which no command's section names."""
_BRIEF = ("demo", "dev", "outbox pump", "spark")
"""Beginnings of commands of which the page leaves the options to `--help`: trials, and one program's jobs."""
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
        if not each.hidden:  # an earlier name
            yield from _leaves((*words, name), each)


def parts() -> Mapping[str, str]:
    """The lists of shared options, the exit codes, and the sections of the commands."""
    by_heading = all_commands()
    every = [
        command
        for commands in by_heading.values()
        for words, command in commands
        if not " ".join(words).startswith(_BRIEF)
    ]
    of_program = [_option(one, cli) for one in _shown(cli) if one.name not in ("help", "version")]
    shared = _shared(every)
    of_most = [line for name in _MOST for line in shared if re.match(f"- `{name}[ `]", line)]
    return {
        "global": "\n".join(of_program),
        "most": "\n".join(of_most),
        "without": f"Without the first three: {_without(by_heading, DATABASE)}. "
        f"Without `--json`: {_without(by_heading, ['--json'])}.",
        "shared": "\n".join(sorted(shared - {*of_most})),
        "exit_codes": _exit_codes(),
        "commands": "\n\n".join(
            "\n\n".join([f"## {heading}", *(_section(*one, shared) for one in commands)])
            for heading, commands in by_heading.items()
        ),
    }


def _exit_codes() -> str:
    return table(("exit code", "meaning"), exit_codes())


def _shown(command: click.Command) -> list[click.Option]:
    return [one for one in command.params if isinstance(one, click.Option) and not one.hidden]


def _shared(every: list[click.Command]) -> set[str]:
    """What several commands say in the same words of an option; of several such texts, the most common."""
    said = Counter(_option(option, command) for command in every for option in _shown(command))
    of_name: dict[str, str] = {}
    for line, count in said.most_common():
        if count > 1:
            of_name.setdefault(line.split("`")[1].split()[0], line)
    return set(of_name.values())


def _section(words: Words, command: click.Command, shared: set[str]) -> str:
    """A command: what is said of its options, but of the shared ones only their names, in the usage."""
    name = " ".join(words)
    context = click.Context(command, info_name=name)
    arguments = [part for part in command.collect_usage_pieces(context) if part != "[OPTIONS]"]
    shown = [one for one in _shown(command) if one.opts[0] not in _MOST]
    if name.startswith(_BRIEF):
        shown = [one for one in shown if one.required]
    options = {one: _option(one, command) for one in shown}
    named = [f"{one.opts[0]} {one.make_metavar(context)}" for one in options if one.required]
    named += [f"[{one.opts[0]}]" for one, line in options.items() if line in shared and not one.required]
    page, _ = EXAMPLES[name]
    usage = " ".join([*arguments, *named])
    return "\n\n".join(
        part
        for part in (
            f"### {name}",
            f"{code(usage) + ': ' if usage else ''}{_described(command, page)} [More]({page})",
            "" if name.startswith(_BRIEF) else _lines(options.values(), shared),
        )
        if part
    )


def _lines(options: Iterable[str], shared: set[str]) -> str:
    return "\n".join(line for line in options if line not in shared)


def _described(command: click.Command, page: str) -> str:
    """Its summary: the page with more has the rest, unless that is the page of commands itself."""
    summary, _, rest = (command.help or "").partition("\n\n")
    return " ".join(f"{summary} {rest if page == 'cli.md' else ''}".split())


def _without(by_heading: Mapping[str, list[tuple[Words, click.Command]]], names: Iterable[str]) -> str:
    """The commands that take none of these options."""
    every = [one for commands in by_heading.values() for one in commands]
    return codes(
        " ".join(words)
        for words, command in every
        if not {option.opts[0] for option in _shown(command)} & set(names)
    )


def _option(option: click.Option, command: click.Command) -> str:
    """The option with its value, its help, and its default."""
    context = click.Context(command)
    record = option.get_help_record(context)
    assert record is not None
    names = " / ".join([*option.opts, *option.secondary_opts])
    metavar = "" if option.is_flag else option.make_metavar(context)
    metavar = _METAVARS.get(metavar, metavar)
    metavar = metavar[1:-1] if re.fullmatch(r"\[[^\[]*\]", metavar) else metavar
    text = sentence(_DEFAULT.sub("", option.help or "")) if option.help else ""
    if bounds := re.search(r"([\d.]+)<=x<=([\d.]+)", record[1]):
        text += f" {bounds[1]} to {bounds[2]}."
    if option.envvar and option.show_envvar:
        text += f" Or set `{option.envvar}`."
    defaults = [
        f" Default{f' {when}' if when else ''}: {value}." for when, value in _DEFAULT.findall(record[1])
    ]
    required = " Required." if option.required else ""
    return f"- {code(f'{names} {metavar}'.strip())}: {text}{''.join(defaults)}{required}"
