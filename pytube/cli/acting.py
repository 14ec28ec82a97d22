"""What commands of operators share: a session, lengths of time, and the question before something is done."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click
import psycopg

from pytube.cli.context import Database
from pytube.cli.settings import Settings
from pytube.config import Config
from pytube.db.version import check

_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}


class Duration(click.ParamType[timedelta]):
    """A length of time such as `90s`, `10m`, `2h`, `1d`."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The length."""
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d{1,6})\s*(s|min|m|h|d)", str(value).strip())
        if found is None or int(found[1]) == 0:
            self.fail(f"{value!r} is no time; write 90s, 10m, 2h or 1d", param, ctx)
        return timedelta(**{_UNITS[found[2]]: int(found[1])})


def configured(settings: Settings, database: Database) -> Config:
    """The configuration, with the database that was named in place of its own."""
    config = settings.config()
    postgres = config.postgres.model_copy(update={"dsn": database.dsn, "schema_name": database.schema})
    return config.model_copy(update={"postgres": postgres})


@contextmanager
def session(database: Database) -> Iterator[psycopg.Connection]:
    """A session whose SQL is the one that is needed."""
    with database.connect() as connection:
        check(connection, database.schema)
        yield connection


def yes_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--yes`."""
    return click.option("--yes", is_flag=True, help="Don't ask before it is done.")(command)


def tube_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--tube`, which it needs."""
    return click.option("--tube", "name", metavar="NAME", required=True, help="The tube.")(command)


def partition_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--partition`."""
    return click.option(
        "--partition", type=click.IntRange(min=0), help="Only this partition; by default all."
    )(command)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on stderr, so that stdout has the result alone; without a yes nothing is done."""
    if not yes:
        click.confirm(question, abort=True, err=True)
