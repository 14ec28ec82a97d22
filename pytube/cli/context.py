"""What commands share: where the configuration is, and which database is meant."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import click
import psycopg
from click.core import ParameterSource
from pydantic import SecretStr

from pytube.cli.settings import Settings
from pytube.config import Config, PostgresConfig
from pytube.db.connect import connect_sync, database_of
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
    """Give a command `--dsn`, `--schema` and `--host`, and pass it the `database` that is meant.

    That is the one of `--dsn`, else of `PYTUBE_DSN`, else of the configuration.

    Raises:
        UsageError: `PYTUBE_DSN` and the file of `--config` name two databases, or there are several hosts.
    """
    return databases_options(_takes_one(command))


def configured_database_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `database_options`, for a command that reads more of the file: its sinks, say.

    So the two have to agree wherever there is a file: documents of one database are not to be compared with
    the copy of another one.
    """
    return configured_databases_options(_takes_one(command))


def _takes_one(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def wrapper(*arguments: Any, databases: Sequence[Database], **options: Any) -> Any:
        if len(databases) > 1:
            names = ", ".join(str(database.host) for database in databases)
            raise UsageError(f"which host? The configuration has several: give --host, one of {names}")
        return command(*arguments, database=databases[0], **options)

    return wrapper


def databases_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `database_options`, for a command that takes the `databases` of all hosts unless one is named."""
    return _databases_options(command, reads_file=False)


def configured_databases_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `configured_database_options`, for a command that takes the `databases` of all hosts."""
    return _databases_options(command, reads_file=True)


def _databases_options(command: Callable[..., Any], *, reads_file: bool) -> Callable[..., Any]:
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
        context = click.get_current_context()
        settings = context.find_object(Settings)
        assert settings is not None
        if dsn is not None and (reads_file or settings.is_option) and settings.has_file:
            config = settings.config()
            if context.get_parameter_source("dsn") is ParameterSource.ENVIRONMENT:
                _see_that_it_is_one_of(config, dsn, settings)
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


def _see_that_it_is_one_of(config: Config, dsn: str, settings: Settings) -> None:
    """Refuse a variable that names another database than the file does; its role may be another."""
    configured = [config.of_host(host).postgres.only_dsn.get_secret_value() for host in config.hosts]
    ours = _address(dsn)
    theirs = [_address(one) for one in configured]
    if ours is not None and None not in theirs and ours not in theirs:
        named = " or ".join(" at ".join(one) for one in theirs if one is not None)
        raise UsageError(
            f"PYTUBE_DSN names the database {' at '.join(ours)}, but {settings.path} names {named}; "
            "say which is meant by --dsn, or unset PYTUBE_DSN"
        )


def _address(dsn: str) -> tuple[str, str] | None:
    """The database and the server of a connection string; None where these stand elsewhere."""
    try:
        service, named, numeric, port, name = database_of(dsn)
    except ConfigError:
        return None  # told of where it is used
    if service is not None or name is None:
        return None
    host = numeric or named or ""
    if host in {"", "localhost", "127.0.0.1", "::1"} or host.startswith("/"):
        host = "localhost"
    return name, f"{host}:{port}"
