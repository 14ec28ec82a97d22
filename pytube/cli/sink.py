"""`pytube sink …`: checks of a sink before it serves a tube."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

import click

from pytube import admin
from pytube.cli.context import database_options, json_option, tube_argument
from pytube.cli.exits import NOT_WELL, first_signal, interrupted
from pytube.cli.output import print_json, print_text, tell
from pytube.cli.program import Settings
from pytube.config import SinkConfig
from pytube.db.database import Database
from pytube.errors import ConfigError, UsageError
from pytube.health.doctor import check_sink
from pytube.health.findings import Level
from pytube.model import KeyType
from pytube.sinks import build_sink
from pytube.sinks.base import Trial, Trying
from pytube.testing.trial import Checked, Interruption, names_of_checks, run_checks

_OF_PARTS = "the checks write whole documents, and how the configuration splits them is not judged"
_COLORS = {"ok": "green", "failed": "red", "not judged": "yellow"}


@click.group()
def sink() -> None:
    """Check a tube's sink, or accept it as complete."""


@sink.command()
@tube_argument()
@click.option("--yes", is_flag=True, help="Send even to a receiver that can't undo it.")
@json_option
@click.pass_obj
def check(settings: Settings, name: str, yes: bool, as_json: bool) -> None:
    """Run the conformance suite against a tube's sink.

    Uses a separate index, table, topic, file, or key prefix and deletes it afterwards, even if interrupted.
    Reads and changes no document of the tube. Exits with 1 if a check fails or something remains.
    """
    configured = settings.config().tube(name).sink
    # Without its parts: the suite writes documents of any form.
    built = build_sink(configured.type, configured.options, request_timeout=configured.request_timeout)
    if not isinstance(built, Trying):
        raise ConfigError(
            f"the sink {configured.type} of tube {name!r} has no method `trial`, so the checks have no "
            "separate place to write to; see docs/sinks.md"
        )
    first = built.trial("trial-0", KeyType.BIGINT)
    if first.erase is None and not yes:
        raise UsageError(
            f"{len(names_of_checks())} checks would send to {first.where} and the like; the "
            "receiver can't undo that; --yes sends it"
        )
    if not as_json:
        for note in (*first.notes, *_notes(name, configured)):
            click.echo(f"note: {note}")
    left: list[str] = []
    found: list[Checked] = []
    interruption = Interruption()
    # A sink warns at each of its many opens; a worker repeats the warning once, at its start.
    log = logging.getLogger("pytube")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with first_signal(interruption.ask) as received:
            for checked in run_checks(built.trial, left.append, interruption):
                found.append(checked)
                if checked.left is not None:
                    left.append(checked.left)
                _tell_checked(checked, as_json=as_json)
    finally:
        log.setLevel(level)
    if received:
        interrupted(128 + received[0], f"; {_about(left)}")
    if not as_json:
        _sum_up(found, first, left)
    if left or any(one.result == "failed" for one in found):
        click.get_current_context().exit(NOT_WELL)


def _notes(tube: str, configured: SinkConfig) -> Iterator[str]:
    """Remarks on parts that the checks don't judge."""
    if configured.parts is not None:
        yield _OF_PARTS
    own = check_sink(tube, configured)
    if own.level is Level.WARN:
        yield f"of the place of the tube itself, which is not checked: {own.finding}: {own.remedy}"


@sink.command()
@tube_argument()
@json_option
@database_options()
def accept(database: Database, name: str, as_json: bool) -> None:
    """Accept a sink as complete although it lost documents.

    A `pytube verify` that finds no difference does the same, and so does a finished backfill of all tables.
    """
    with database.connect() as connection:
        found = admin.accept_sink(connection, name, database.schema)
    text = f"the sink of {name} counts as complete" if found else f"the sink of {name} was not found emptied"
    tell(text, {"tube": name, "accepted": bool(found)}, as_json=as_json)


def _about(left: list[str]) -> str:
    return f"left at the sink, delete it: {'; '.join(left)}" if left else "nothing is left at the sink"


def _tell_checked(checked: Checked, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(checked))
        return
    start = f"{checked.result:<10}  {checked.check}"
    mark = click.style(f"{checked.result:<10}", fg=_COLORS[checked.result])
    print_text(f"{start}: " if checked.reason else start, checked.reason or "", mark)


def _sum_up(found: list[Checked], first: Trial, left: list[str]) -> None:
    counts: Counter[str] = Counter(one.result for one in found)
    click.echo(", ".join(f"{counts[result]} {result}" for result in _COLORS))
    click.echo("the receiver keeps everything that was sent" if first.erase is None else _about(left))
