"""The limits of a backfill, on the command line."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import click

from pytube.backfill.limits import BackfillLimits
from pytube.cli.context import Settings

_OFF = "off"
_METAVAR = f"NUMBER|{_OFF}"


def _number(text: str) -> float | str:
    """A finite number above zero, or `off`."""
    return text if text == _OFF else _positive(click.FLOAT, text)


def _whole(text: str) -> int | str:
    """A whole number above zero, or `off`."""
    return text if text == _OFF else int(_positive(click.INT, text))


def _positive(kind: Any, text: str) -> float:
    number = float(kind.convert(text, None, None))
    if not (math.isfinite(number) and number > 0):
        raise click.BadParameter(f"{text!r} is no finite number above 0")
    return number


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what replaces `[tube.NAME.backfill]`, as `given`."""

    @click.option("--backlog", type=click.IntRange(min=1), help="Wait while so many backfill pods wait.")
    @click.option("--replica-lag", type=_number, metavar=_METAVAR, help="Seconds, likewise.")
    @click.option("--replica-behind", type=_whole, metavar=_METAVAR, help="Megabytes of WAL, likewise.")
    @click.option("--rate", type=_number, metavar=_METAVAR, help="Rows a second at most.")
    @click.option("--chunk", type=click.IntRange(1, 10_000), help="Pods in one transaction, at most.")
    @functools.wraps(command)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        names = [field.name for field in dataclasses.fields(BackfillLimits)]
        given = {name: options.pop(name) for name in names}
        return command(*arguments, given={k: v for k, v in given.items() if v is not None}, **options)

    return wrapper


def limits_of(tube: str, given: dict[str, Any]) -> BackfillLimits:
    """What is configured for the tube, but for what was given."""
    settings = click.get_current_context().find_object(Settings)
    limits = BackfillLimits()
    if settings is not None and settings.path.exists():
        configured = settings.config().tubes.get(tube)
        limits = BackfillLimits.of(configured.backfill) if configured is not None else limits
    values: dict[str, Any] = {name: None if value == _OFF else value for name, value in given.items()}
    return dataclasses.replace(limits, **values)
