"""What commands share: where the configuration is, and which database is meant."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
import psycopg
from pydantic import SecretStr

from pytube.cli.settings import Settings
from pytube.config import PostgresConfig
from pytube.db.connect import connect_sync
from pytube.db.errors import translated
from pytube.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Database:
    """The database that a command works on."""

    dsn: SecretStr
    schema: str
    answer_timeout: float = PostgresConfig.model_fields["answer_timeout"].default
    """Seconds that a chunk of a backfill may take."""

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection]:
        """A session for the time of the command."""
        with (
            translated(),
            connect_sync(self.dsn, self.schema, application_name="pytube cli") as connection,
        ):
            yield connection


def database_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--dsn` and `--schema`, and pass it the `database` that they or the file mean."""

    @click.option(
        "--dsn",
        envvar="PYTUBE_DSN",
        show_envvar=True,
        metavar="DSN",
        help="The database, in place of the configuration's. Other users of this machine can see "
        "arguments: a password belongs into the variable.",
    )
    @click.option(
        "--schema",
        envvar="PYTUBE_SCHEMA",
        show_envvar=True,
        metavar="NAME",
        help="The schema of our SQL, in place of the configuration's (tube).",
    )
    @functools.wraps(command)
    def wrapper(*arguments: Any, dsn: str | None, schema: str | None, **options: Any) -> Any:
        settings = click.get_current_context().find_object(Settings)
        assert settings is not None
        return command(*arguments, database=_database(settings, dsn, schema), **options)

    return wrapper


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--json`, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _database(settings: Settings, dsn: str | None, schema: str | None) -> Database:
    has_file = settings.has_file
    if dsn is not None:
        return Database(SecretStr(dsn), schema or str(PostgresConfig.model_fields["schema_name"].default))
    if not has_file:
        raise ConfigError(f"which database? There is no {settings.path}; give --dsn, PYTUBE_DSN, or --config")
    postgres = settings.config().postgres
    return Database(postgres.only_dsn, schema or postgres.schema_name, postgres.answer_timeout)
