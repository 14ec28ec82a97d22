"""What commands share: where the configuration is, and which database is meant."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import click
import psycopg
from pydantic import SecretStr

from pytube.cli.settings import Settings
from pytube.config import PostgresConfig
from pytube.db.connect import connect_sync
from pytube.db.errors import translated
from pytube.errors import ConfigError, UsageError


@dataclass(frozen=True, slots=True)
class Database:
    """The database that a command works on."""

    dsn: SecretStr
    schema: str
    answer_timeout: float = PostgresConfig.model_fields["answer_timeout"].default
    """Seconds that a chunk of a backfill may take."""

    host: str | None = None
    """Its name in the configuration, where there are several."""

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection]:
        """A session for the time of the command."""
        with (
            translated(),
            connect_sync(self.dsn, self.schema, application_name="pytube cli") as connection,
        ):
            yield connection


@dataclass(frozen=True, slots=True)
class Asked:
    """Which command was called, and on which databases it works: for what is said when it fails."""

    KEY: ClassVar = "pytube.asked"
    """Of `click.Context.meta`."""

    command: tuple[str, ...]
    """As `("tube", "create")`."""
    databases: Sequence[Database]

    @classmethod
    def note(cls, databases: Sequence[Database]) -> None:
        """Keep them where the program looks for them."""
        context = click.get_current_context()
        meta, names = context.meta, []
        while context.parent is not None:
            names.append(str(context.info_name))
            context = context.parent
        meta[cls.KEY] = cls(tuple(reversed(names)), databases)


def database_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--dsn`, `--schema` and `--host`, and pass it the `database` that is meant."""

    @databases_options
    @functools.wraps(command)
    def wrapper(*arguments: Any, databases: Sequence[Database], **options: Any) -> Any:
        if len(databases) > 1:
            names = ", ".join(str(database.host) for database in databases)
            raise UsageError(f"which host? The configuration has several: give --host, one of {names}")
        return command(*arguments, database=databases[0], **options)

    return wrapper


def databases_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `database_options`, for a command that takes the `databases` of all hosts unless one is named."""

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
    @click.option("--host", metavar="NAME", help="The host, where the configuration has several.")
    @functools.wraps(command)
    def wrapper(
        *arguments: Any, dsn: str | None, schema: str | None, host: str | None, **options: Any
    ) -> Any:
        settings = click.get_current_context().find_object(Settings)
        assert settings is not None
        databases = databases_of(settings, dsn, schema, host)
        Asked.note(databases)
        return command(*arguments, databases=databases, **options)

    return wrapper


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--json`, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def databases_of(
    settings: Settings, dsn: str | None = None, schema: str | None = None, host: str | None = None
) -> Sequence[Database]:
    """The databases that are meant: that of `dsn`, else those of the configuration's hosts, or of one."""
    has_file = settings.has_file
    if dsn is not None:
        if host is not None:
            raise UsageError(
                "--host names a host of the configuration; leave it out, or --dsn and PYTUBE_DSN"
            )
        return [Database(SecretStr(dsn), schema or str(PostgresConfig.model_fields["schema_name"].default))]
    if not has_file:
        raise ConfigError(f"which database? There is no {settings.path}; give --dsn, PYTUBE_DSN, or --config")
    config = settings.config()
    databases = []
    for name in config.hosts if host is None else [host]:
        postgres = config.of_host(name).postgres
        schema_name = schema or postgres.schema_name
        databases.append(Database(postgres.only_dsn, schema_name, postgres.answer_timeout, name))
    return databases
