"""What commands share: which database is meant, and options that several have."""

from __future__ import annotations

import functools
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import psycopg
from click.core import ParameterSource
from pydantic import SecretStr

from pytube.cli.output import Table, keep_json, print_table, wants_json
from pytube.cli.program import INTERRUPTED, Settings
from pytube.clock import length_of
from pytube.config import Config
from pytube.counts import harmless
from pytube.db.connect import database_of
from pytube.db.database import DEFAULT_SCHEMA, Database
from pytube.errors import ConfigError, PytubeError, UsageError, of_host

_Command = Callable[..., Any]
_Decorator = Callable[[_Command], _Command]
PREVIEW = 5
"""Rows that a command shows before it asks about them."""
ASKED: Final = "pytube.cli.asked"
"""Where the context of click has `Asked`, once the databases are known."""


class Asked(NamedTuple):
    """Which command was called, and on which databases it works: for the sentence of a failure."""

    command: Sequence[str]
    """As `["tube", "create"]`."""
    databases: Sequence[Database]


def note_asked(databases: Sequence[Database]) -> None:
    """Keep which command was called."""
    context = click.get_current_context()
    context.meta[ASKED] = Asked(context.command_path.split()[1:], databases)


class Session(NamedTuple):
    """A session, and the schema of pytube's SQL: for a command's `opens`."""

    connection: psycopg.Connection
    schema: str


def database_options(
    *,
    several: bool = False,
    configured: bool = False,
    unless: str | None = None,
    opens: Callable[[psycopg.Connection, str], object] | None = None,
    has_json: bool = True,
) -> _Decorator:
    """Give a command `--json`, `--dsn`, `--schema` and `--host`, and pass it the `database` that is meant.

    That is named by `--dsn`, else by `PYTUBE_DSN`, else by the configuration. The returned decorator raises
    `UsageError` where `PYTUBE_DSN` and the file of `--config` name two databases, or there are several hosts.

    Args:
        several: pass the `databases` of all hosts, unless one is named.
        configured: the command reads more of the file, so that the two have to agree wherever there is one:
            documents of one database are not to be compared with the copy of another one.
        unless: a flag of the command, with which it needs only the schema: where nothing names a database, it
            gets one without a DSN.
        opens: called with a session and the schema of pytube's SQL; the command gets the result as its first
            argument, in place of the database.
        has_json: whether it prints anything that programs may read.
    """

    def decorate(command: _Command) -> _Command:
        @click.option(
            "--dsn",
            envvar="PYTUBE_DSN",
            show_envvar=True,
            metavar="DSN",
            help="Database to connect to. Put passwords in PYTUBE_DSN; arguments are visible to other users.",
        )
        @click.option(
            "--schema",
            envvar="PYTUBE_SCHEMA",
            show_envvar=True,
            metavar="NAME",
            help="Schema where pytube is installed. [default: tube]",
        )
        @click.option("--host", metavar="NAME", help="Configured host to use.")
        @functools.wraps(command)
        def wrapper(
            *arguments: Any, dsn: str | None, schema: str | None, host: str | None, **options: Any
        ) -> Any:
            context, settings = click.get_current_context(), current_settings()
            if dsn is not None and (configured or settings.is_option) and settings.has_file:
                config = settings.config()
                if context.get_parameter_source("dsn") is ParameterSource.ENVIRONMENT:
                    _see_that_it_is_one_of(config, dsn, settings)
            if dsn is None and unless is not None and options[unless] and not settings.has_file:
                dsn = ""
            databases = databases_of(settings, dsn, schema, host)
            note_asked(databases)
            if several:
                return command(*arguments, databases=databases, **options)
            database = only_one(databases)
            if opens is None:
                return command(*arguments, database=database, **options)
            with database.connect() as connection:
                return command(opens(connection, database.schema), *arguments, **options)

        return json_option(wrapper) if has_json else wrapper

    return decorate


def only_one(databases: Sequence[Database]) -> Database:
    """The only one of them; `UsageError` if there are several."""
    if len(databases) > 1:
        names = ", ".join(str(database.host) for database in databases)
        raise UsageError(f"which host? The configuration has several: give --host, one of {names}")
    return databases[0]


@contextmanager
def naming_host(host: str | None, before: str = "", behind: str = "") -> Iterator[None]:
    """Errors begin with the name of the host, if it has one; `before` and `behind` are what else is said."""
    try:
        yield
    except PytubeError as error:
        if host is None:
            raise
        raise type(error)(f"{before}{of_host(error, host)}{behind}") from error


def current_settings() -> Settings:
    """The global options of the command that runs."""
    settings = click.get_current_context().find_object(Settings)
    assert settings is not None
    return settings


def config_of(database: Database, tube: str) -> Config:
    """As `unresolved_of`, with the document of this tube compiled where it is declared."""
    config = unresolved_of(database)
    if not config.documents:
        return config
    # Imported late: few commands need the compiler.
    from pytube.documents.resolve import resolve

    return resolve(config, [tube])


def unresolved_of(*databases: Database) -> Config:
    """The configuration, with the named databases, which are all or one, in place of the configured ones."""
    config = current_settings().config()
    if len(databases) > 1:
        hosts = config.postgres.hosts
        named = {
            one.host: hosts[one.host].model_copy(update={"schema_name": one.schema})
            for one in databases
            if one.host is not None
        }
        postgres = config.postgres.model_copy(update={"hosts": named})
        return config.model_copy(update={"postgres": postgres})
    (database,) = databases
    host = database.host or _host_at(config, database.dsn.get_secret_value())
    if host is not None:
        config = config.of_host(host)
    replaced = {"dsn": database.dsn, "hosts": {}, "schema_name": database.schema}
    postgres = config.postgres.model_copy(update=replaced)
    return config.model_copy(update={"postgres": postgres})


def schema_of(dsn: SecretStr) -> str:
    """The configured schema of pytube's SQL: that of the host whose database this is, if it is one's."""
    config = current_settings().config()
    host = _host_at(config, dsn.get_secret_value())
    return (config if host is None else config.of_host(host)).postgres.schema_name


def declared_of(*databases: Database) -> Config:
    """As `unresolved_of`, for declared documents and tables: a host gives them their shards."""
    config, hosts = unresolved_of(*databases), current_settings().config().postgres.hosts
    declares = config.documents or any(tube.tables for tube in config.tubes.values())
    if declares and hosts and len(databases) == 1 and config.first_shard is None:
        names = ", ".join(hosts)
        raise UsageError(f"which host? --dsn names none of the configured ones; give --host, one of {names}")
    return config


def _host_at(config: Config, dsn: str) -> str | None:
    """The only one of several hosts that has this database, if there is one."""
    ours, hosts = _address(dsn), config.postgres.hosts.items()
    found = [host for host, one in hosts if _address(one.dsn.get_secret_value()) == ours]
    return found[0] if ours is not None and len(found) == 1 else None


def databases_of(
    settings: Settings, dsn: str | None = None, schema: str | None = None, host: str | None = None
) -> Sequence[Database]:
    """The database of `dsn`, else the databases of all configured hosts, or of one."""
    has_file = settings.has_file
    if dsn is not None:
        if host is not None:
            raise UsageError(
                "--host names a host of the configuration; leave it out, or --dsn and PYTUBE_DSN"
            )
        return [Database(SecretStr(dsn), schema or DEFAULT_SCHEMA)]
    if not has_file:
        raise ConfigError(f"which database? There is no {settings.path}; give --dsn, PYTUBE_DSN, or --config")
    config = settings.config()
    databases = []
    for name in config.hosts if host is None else [host]:
        postgres = config.of_host(name).postgres
        schema_name = schema or postgres.schema_name
        databases.append(Database(postgres.only_dsn, schema_name, name, postgres.answer_timeout))
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
        return None  # reported where it is used
    if service is not None or name is None:
        return None
    host = numeric or named or ""
    if host in {"", "localhost", "127.0.0.1", "::1"} or host.startswith("/"):
        host = "localhost"
    return name, f"{host}:{port}"


# --- options that several commands have ---------------------------------------------------------------


class Duration(click.ParamType[timedelta]):
    """A length of time such as `90s`, `10m`, `2h`, `1d`."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The length."""
        if isinstance(value, timedelta):
            return value
        try:
            return length_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def flag(*names: str, help: str) -> _Decorator:  # noqa: A002 # as of `click.option`
    """Give a command an option without a value."""
    return click.option(*names, is_flag=True, help=help)


def seconds_option(*names: str, default: float, help: str) -> _Decorator:  # noqa: A002 # as above
    """Give a command an option for how long to wait."""
    return click.option(*names, type=click.FloatRange(min=0), default=default, help=help)


json_option = click.option("--json", is_flag=True, expose_value=False, callback=keep_json, help="Print JSON.")


def refuse_json() -> None:
    """Refuse `--json` beside `--print`, which prints a script."""
    if wants_json():
        raise click.UsageError("--print prints a script for psql, so it can't be given with --json")


yes_option = flag("--yes", help="Don't ask for confirmation.")
partition_option = click.option(
    "--partition", type=click.IntRange(min=0), help="Only this partition. [default: all]"
)
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), default=100, help="Maximum number of rows."
)
lock_option = seconds_option(
    "--lock-timeout",
    default=60.0,
    help="Seconds to retry for the table's lock; writers don't queue behind it.",
)


def options(*several: _Decorator) -> _Decorator:
    """Several options of commands as one decorator."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(several), command)


def tube_argument(name: str = "name", *, is_required: bool = True, several: bool = False) -> _Decorator:
    """Give a command the tube as its argument TUBE, or by `--tube NAME`, as the parameter `name`.

    Args:
        name: of the parameter; it is a tuple of `several` tubes, and None where no tube is named.
        is_required: the returned decorator raises `click.UsageError` where no tube is named.
        several: any number of tubes.
    """

    def decorate(command: _Command) -> _Command:
        @click.argument(
            "as_argument",
            metavar=("TUBE" if is_required else "[TUBE]") + ("..." if several else ""),
            required=False,
            nargs=-1 if several else 1,
            shell_complete=names_of_tubes,
        )
        @click.option("--tube", "as_option", multiple=several, hidden=True)
        @functools.wraps(command)
        def wrapper(*arguments: Any, as_argument: Any, as_option: Any, **options: Any) -> Any:
            if as_argument and as_option and "words" in options:  # of `key_argument`: all of them are its own
                options["words"], as_argument = (as_argument, *options["words"]), None
            if not several and None not in (as_argument, as_option):
                raise click.UsageError("the tube is named twice: by the argument TUBE and by --tube")
            named = as_option if as_argument is None else as_argument
            if several:
                named = (*as_argument, *as_option) or None
            if is_required and named is None:
                raise click.UsageError("Missing argument 'TUBE'.")
            return command(*arguments, **{name: named}, **options)

        return wrapper

    return decorate


def key_argument(text: str | None = None, *, is_required: bool = True, several: bool = False) -> _Decorator:
    """Give a command a key as its argument KEY, behind TUBE, or by `--key`, as the parameter `key`.

    Args:
        text: the help of `--key`; None hides it.
        is_required: the returned decorator raises `click.UsageError` where no key is given.
        several: a key of several columns may be several arguments; the command gets a tuple, or None.
    """

    def decorate(command: _Command) -> _Command:
        metavar = "KEY..." if several else "KEY"

        @click.argument("words", metavar=metavar if is_required else f"[{metavar}]", required=False, nargs=-1)
        @click.option("--key", "option", metavar="ID", hidden=text is None, help=text)
        @functools.wraps(command)
        def wrapper(*arguments: Any, words: tuple[str, ...], option: str | None, **options: Any) -> Any:
            if words and option is not None:
                raise click.UsageError("the key is given twice: by the argument KEY and by --key")
            if len(words) > 1 and not several:
                raise click.UsageError(
                    f"one key, please, not {len(words)}; write one of several columns as '[7, 12]'"
                )
            found = words or (() if option is None else (option,))
            if is_required and not found:
                raise click.UsageError("Missing argument 'KEY'.")
            return command(*arguments, key=(found if several else found[0]) if found else None, **options)

        return wrapper

    return decorate


def names_of_tubes(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell's completion: the tubes of the configuration file."""
    settings = ctx.find_object(Settings)
    path = settings.path if settings else Path(os.environ.get("PYTUBE_CONFIG", "pytube.toml"))
    try:
        names = tomllib.loads(path.read_text(encoding="utf-8")).get("tube", {})
    except (OSError, ValueError):
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def confirm(question: str, *, yes: bool, forced: bool = False) -> None:
    """Ask on stderr, so that stdout has the result alone; a no ends the command, with nothing changed.

    `forced`: with `--force`, a script needs no `--yes`; people are asked all the same.
    """
    if yes or (forced and not has_people()):
        return
    if not has_people():
        raise UsageError(f"{question} This needs an answer, and there is no terminal; --yes answers it")
    if not click.confirm(harmless(question), err=True):
        click.echo("pytube: canceled; nothing was changed", err=True)
        click.get_current_context().exit(INTERRUPTED)


def confirm_rows(verb: str, what: str, count: int, table: Table, rows: Sequence[Any]) -> None:
    """Show some of the `count` rows that are meant, and ask; see `confirm`."""
    if has_people() and not wants_json():
        print_table(table, rows, "")
    rest = f", {count - len(rows)} of them not shown" if count > len(rows) else ""
    confirm(f"{verb} {what}{rest}?", yes=False)


def has_people() -> bool:
    """Whether a question can be seen and answered: stdin and stderr are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()
