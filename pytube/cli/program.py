"""The program: global options, its commands with examples of each, and how an error ends it.

An error is one sentence on stderr, and an exit code that means something.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click
from click.core import ParameterSource

import pytube
from pytube.counts import harmless
from pytube.errors import page as address

if TYPE_CHECKING:
    from pytube.config import Config
    from pytube.logs import Format

GROUPS = {
    "Start": {
        "demo": ("worker", "Demonstrate pytube here: servers, load, a killed worker, a check."),
        "dev": ("worker", "Start a Postgres, Redis, Kafka, or OpenSearch to try."),
        "install": ("installation", "Install or upgrade pytube in the database."),
        "plan": ("document", "Show what apply would change, without changing anything."),
        "apply": ("document", "Make the database match the configuration file."),
        "tube": ("tube", "Create, attach, list, and drop tubes."),
        "document": ("document", "Show declared documents, or translate a PGSync schema."),
        "config": ("installation", "Show the configuration."),
        "upgrade": ("installation", "Upgrade pytube in the database; writers and workers can run."),
        "uninstall": ("installation", "Remove pytube and all tubes from the database; roles stay."),
    },
    "Run": {
        "worker": ("worker", "Deliver changes to sinks and messages to Kafka."),
        "pause": ("operators", "Pause delivery of a tube or one partition."),
        "resume": ("operators", "Resume a paused tube or partition, or one a worker stopped."),
    },
    "Look": {
        "status": ("status", "Show backlog, lag, and leaders."),
        "top": ("status", "Watch tubes, partitions, and workers on a terminal."),
        "web": ("worker", "Show the fleet in a browser."),
        "doctor": ("installation", "Check everything a worker needs and suggest fixes."),
        "explain": ("verify", "Show whether a key is queued, in flight, parked, or delivered."),
        "audit": ("operators", "List what operators did, newest first; dropped tubes included."),
    },
    "Act": {
        "touch": ("operators", "Resend documents of TUBE by ids of TABLE."),
        "pods": ("pods", "List, show, retry, step through, or discard queued pods."),
        "park": ("operators", "List, show, retry, or discard documents that failed."),
    },
    "Data": {
        "backfill": ("backfill", "Resend every row, then delete orphaned documents."),
        "verify": ("verify", "Compare a tube's sink with the source."),
        "wait": ("verify", "Wait until committed changes are at the sink."),
        "reindex": ("sink", "Build a new index while the old one serves, then switch."),
        "sink": ("sink", "Check a tube's sink, or accept it as complete."),
    },
    "Outbox": {"outbox": ("outbox", "Create, adopt, list, and drop outboxes; act on parked records.")},
    "Spark": {"spark": ("spark", "Run fan-outs, backfills, and reconciliation with PySpark.")},
}
"""The commands by heading: the module of each in this package, and its summary. `--help` and `--version` load
no module: to import all of them takes half a second and more."""
COMMANDS = {name: command for commands in GROUPS.values() for name, command in commands.items()}

EXAMPLES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "apply": ("documents.md#what-apply-does", ("", "orders --backfill --yes")),
    "audit": ("operate.md#audit", ("", "es-live --limit 20")),
    "backfill cancel": ("backfill.md#run-one", ("es-live", "es-live --table public.orders")),
    "backfill pause": ("backfill.md#run-one", ("es-live", "es-live --table public.orders")),
    "backfill resume": ("backfill.md#run-one", ("es-live", "es-live --rate 2000 --wait")),
    "backfill start": ("backfill.md#run-one", ("es-live --wait", "es-live --in-worker")),
    "backfill status": ("backfill.md#what-the-numbers-mean", ("", "es-live --json")),
    "config show": ("configuration.md", ("", "--json")),
    "demo": ("index.md", ("", "--outbox --seconds 20")),
    "dev": ("cli.md", ("postgres", "opensearch --port 9201")),
    "doctor": ("monitor.md#doctor", ("", "--json")),
    "document from-pgsync": ("documents.md#coming-from-pgsync", ("schema.json",)),
    "document show": ("documents.md#what-plan-shows", ("orders", "orders 7")),
    "explain": ("verify.md#explain", ("es-live 7", "es-live 7 --table public.orders")),
    "install": ("install.md#install-the-sql", ("", "--roles shop")),
    "outbox acknowledge": ("outbox.md#watch-and-repair", ("events",)),
    "outbox adopt": ("outbox.md#adopt-a-table-of-goharvests", ("events public.outbox --partitions 6",)),
    "outbox create": ("outbox.md#the-table", ("events", "events --partitions 6 --value-type bytea")),
    "outbox parked discard": ("outbox.md#watch-and-repair", ("events 17 18", "events --topic orders --yes")),
    "outbox drop": ("outbox.md#the-table", ("events", "events --force")),
    "outbox list": ("outbox.md#watch-and-repair", ("", "--json")),
    "outbox park": ("outbox.md#watch-and-repair", ("events --topic orders",)),
    "outbox parked list": ("outbox.md#watch-and-repair", ("", "events --limit 20")),
    "outbox pump": ("outbox.md#generate-load", ("events --rate 500 --duration 60", "events --keys 10")),
    "outbox parked retry": ("outbox.md#watch-and-repair", ("events 17", "events --all")),
    "outbox parked show": ("outbox.md#watch-and-repair", ("events 17",)),
    "outbox status": ("outbox.md#watch-and-repair", ("", "events --json")),
    "park discard": ("operate.md#parked-documents", ("es-live --key 7", "es-live --older-than 7d --yes")),
    "park list": ("operate.md#parked-documents", ("", "es-live --error mapping --limit 20")),
    "park retry": ("operate.md#parked-documents", ("es-live", "es-live --error mapping --yes")),
    "park show": ("operate.md#parked-documents", ("es-live 7",)),
    "pause": (
        "operate.md#pause-and-resume",
        ("es-live --reason 'new mapping'", "es-live --partition 2 --for 10m"),
    ),
    "plan": ("documents.md#what-plan-shows", ("", "orders --json")),
    "pods discard": (
        "operate.md#inspect-and-change-pods",
        ("es-live --key 7", "es-live --from 100 --to 200 --yes"),
    ),
    "pods list": ("operate.md#inspect-and-change-pods", ("es-live", "es-live --partition 2 --key 7")),
    "pods reset": ("operate.md#inspect-and-change-pods", ("es-live", "es-live --key 7")),
    "pods retry": ("operate.md#inspect-and-change-pods", ("es-live --partition 2", "es-live --key 7")),
    "pods show": ("operate.md#inspect-and-change-pods", ("es-live --seq 100", "es-live 7")),
    "pods step": ("operate.md#inspect-and-change-pods", ("es-live --partition 2",)),
    "reindex abandon": ("reindex.md#go-back-or-give-up", ("es-live",)),
    "reindex compare": ("reindex.md#step-by-step", ("es-live",)),
    "reindex finish": ("reindex.md#step-by-step", ("es-live",)),
    "reindex start": ("reindex.md#step-by-step", ("es-live --wait",)),
    "reindex status": ("reindex.md#step-by-step", ("es-live", "es-live --json")),
    "reindex switch": ("reindex.md#step-by-step", ("es-live", "es-live --back")),
    "resume": ("operate.md#pause-and-resume", ("es-live", "es-live --partition 2")),
    "sink accept": ("sinks.md#a-sink-that-was-emptied", ("es-live",)),
    "sink check": ("sinks.md#trying-a-sink", ("es-live",)),
    "spark backfill": ("spark.md#backfill", ("es-live --table public.orders --cores 8",)),
    "spark fanout": (
        "spark.md#fan-out",
        ("es-live --query 'SELECT id FROM orders WHERE total > 100' --job big-orders",),
    ),
    "spark jobs": ("spark.md#when-something-fails", ("", "--json")),
    "spark reconcile": (
        "spark.md#reconcile",
        ("--source public.orders --sink es-live.jsonl --tube es-live",),
    ),
    "spark touch": ("spark.md#fan-out", ("es-live --input ids.parquet --format parquet",)),
    "status": ("monitor.md#doctor", ("", "es-live --watch")),
    "top": ("monitor.md#top", ("", "--interval 2")),
    "touch": ("operate.md#parked-documents", ("es-live public.orders 7 8", "es-live public.orders -- -1")),
    "tube acknowledge": ("verify.md#copies-that-are-to-be-verified", ("es-live",)),
    "tube attach": (
        "attach.md",
        ("es-live public.orders --shards 16", "es-live public.items --id-col order_id"),
    ),
    "tube create": ("attach.md", ("es-live --partitions 4", "es-live --keys uuid")),
    "tube detach": ("attach.md#options", ("es-live public.items",)),
    "tube drop": ("operate.md#uninstall", ("es-live", "es-live --force")),
    "tube list": ("attach.md", ("", "--json")),
    "tube rebase": ("runbook.md#restore-from-a-backup", ("es-live --epoch 41",)),
    "uninstall": ("operate.md#uninstall", ("", "--force")),
    "upgrade": ("upgrade.md", ("",)),
    "verify": ("verify.md#verify", ("es-live", "es-live --sample 1% --repair")),
    "wait": ("verify.md#wait", ("es-live", "es-live orders --timeout 10")),
    "web": ("monitor.md#pages-for-a-browser", ("", "--listen 127.0.0.1:8080 --token-file token")),
    "worker": ("deploy.md#run-a-worker", ("", "--tube es-live --watch")),
}
"""By the words of a command: a page with its section, and arguments."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The global options."""

    path: Path
    is_named: bool
    """Whether the file was named, by the option or the variable; else it may be missing."""
    is_option: bool
    """Whether `--config` named it."""
    debug: bool

    def config(self) -> Config:
        """The configuration; `ConfigError` names the mistake in it."""
        # Here, because its models take longer to load than `--help` takes to print.
        from pytube.config import load

        return load(self.path)

    @property
    def has_file(self) -> bool:
        """Whether there is a configuration file; `ConfigError` if one was named that is not there."""
        if not self.path.exists():
            if self.is_named:
                self.config()
            return False
        return True


def show_examples(words: str, command: click.Command) -> None:
    """Have the help of a command, or of all in a group, show defaults, and end with their examples."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            show_examples(f"{words} {name}", inner)
        return
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        has_default = isinstance(option.default, str | int | float) and not option.is_flag
        option.show_default = has_default and "[default: " not in (option.help or "")
        # click would show the type, such as INTEGER RANGE.
        is_number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
        if option.metavar is None and is_number:
            option.metavar = "SECONDS" if "econds" in (option.help or "") else "N"
    if words in EXAMPLES:
        page, calls = EXAMPLES[words]
        lines = "\n".join(f"  pytube {words} {arguments}".rstrip() for arguments in calls)
        command.epilog = f"\b\nExamples:\n{lines}\n\nMore: {address(page)}"


class Later(click.Command):
    """A command whose module is not loaded yet."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._module = module

    def load(self) -> click.Command:
        """The command itself."""
        command = getattr(importlib.import_module(f"pytube.cli.{self._module}"), str(self.name))
        assert isinstance(command, click.Command)
        show_examples(str(self.name), command)
        return command


# --- how a command ends -----------------------------------------------------------------------------

NOT_WELL: Final = 1
REFUSED: Final = 2
FAILED: Final = 3
INTERNAL: Final = 70
"""`EX_SOFTWARE` of sysexits.h."""
INTERRUPTED: Final = 130
TERMINATED: Final = 143
READER_GONE: Final = 141

EXIT_CODES: Final[dict[str, tuple[str, str]]] = {
    "0": ("done", "done; a check: equal, well, or delivered"),
    "1": (
        "the answer is no: it differs, fails a check, or did not finish in time",
        """`verify`, `reindex compare`, `reindex switch`, `spark reconcile`, `demo`: the copy differs;
        `doctor`, `sink check`: a check fails; `wait`: a timeout, or parked keys; `apply --wait`: a timeout,
        or no worker; `pause`, `outbox park`: still in flight after `--drain`""",
    ),
    "2": (
        "usage, configuration, or permission error; nothing was changed",
        """wrong arguments or configuration, or a missing right; nothing was changed. `backfill start`
        and `resume`: also if the backfill failed, or was canceled or superseded""",
    ),
    "3": (
        "Postgres, Kafka, or a sink is not available, or failed; try again",
        "Postgres, Kafka, or a sink is not available, is busy (a lock), or failed; try again",
    ),
    "4": (
        "the installed SQL does not match this version",
        "the installed SQL doesn't match this version; the message names the command to run",
    ),
    "70": (
        "internal error; rerun with --debug and report it",
        "internal error; rerun with `--debug`, and report it",
    ),
    "130, 143": (
        "interrupted by SIGINT or SIGTERM, or you answered no; a worker: by a second signal",
        """interrupted by SIGINT or SIGTERM, or you answered no to a question. A worker: ended at once by a
        second signal""",
    ),
    "141": ("the reader of the output is gone", "the reader of the output is gone, as `head` is"),
}
"""Each exit code: the line of `pytube --help`, and the cell of the table in docs/cli.md, see `exit_codes`."""

EPILOG: Final = "\b\nExit codes:\n" + "\n".join(
    f"  {code}  {short}" for code, (short, _) in EXIT_CODES.items()
)
"""The end of `pytube --help`."""


def exit_codes() -> list[tuple[str, str]]:
    """The rows of the table in docs/cli.md."""
    return [(code, " ".join(cell.split())) for code, (_, cell) in EXIT_CODES.items()]


@contextmanager
def first_signal(act: Callable[[], object]) -> Iterator[list[int]]:
    """The first SIGINT or SIGTERM calls `act`, a second one ends the process at once; yields the received."""
    received: list[int] = []

    def on_signal(number: int, _: object) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        act()

    # Only a main thread may, and tests call commands in others.
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupted(code: int, more: str = "") -> NoReturn:
    """End the command as a signal asks for; `more` continues the sentence."""
    click.echo(f"pytube: interrupted{more}", err=True)
    click.get_current_context().exit(code)


def ending(error: BaseException, context: click.Context) -> tuple[str, int]:
    """The sentence and the exit code for an error."""
    match error:
        case KeyboardInterrupt():
            return "interrupted", INTERRUPTED
        case click.Abort() if isinstance(error.__context__, EOFError):
            return "a question needs an answer, and stdin has none; --yes answers it", REFUSED
        case click.Abort():
            return "interrupted", INTERRUPTED
    return _ending_of_ours(error, context)


def _ending_of_ours(error: BaseException, context: click.Context) -> tuple[str, int]:
    import psycopg

    from pytube.cli.context import ASKED
    from pytube.cli.rights import refusal
    from pytube.db.errors import describe
    from pytube.errors import PytubeError, on_host

    if (refused := refusal(error, context.meta.get(ASKED))) is not None:
        return refused, REFUSED
    match error:
        case PytubeError():
            return f"{on_host(str(error), _host(context))}{_more(type(error))}", error.exit_code
        case psycopg.Error():
            # Class 22 is about a value and class 42 about the statement: a retry would fail again.
            asked_wrongly = (error.sqlstate or "")[:2] in ("22", "42")
            return f"Postgres refused: {describe(error)}", REFUSED if asked_wrongly else FAILED
        case _:
            return (
                f"internal error ({type(error).__name__}: {error}); rerun with --debug and report it",
                INTERNAL,
            )


def _host(context: click.Context) -> str | None:
    """The host that the command works on; None: the only one, or several."""
    from pytube.cli.context import ASKED

    asked = context.meta.get(ASKED)
    return asked.databases[0].host if asked is not None and len(asked.databases) == 1 else None


def _more(kind: type[Exception]) -> str:
    """The section of the reference; none for kinds that say no more than the message."""
    from pytube import errors

    general = (errors.PytubeError, errors.ConfigError, errors.UsageError)
    has_section = kind not in general and getattr(errors, kind.__name__, None) is kind
    return f"; more: {errors.page(f'errors.md#{kind.__name__.lower()}')}" if has_section else ""


# --- the program --------------------------------------------------------------------------------------

_OF_THE_PROGRAM = {"--config": 1, "--log-level": 1, "--log-format": 1, "--debug": 0}
_OF_COMMANDS = {"--dsn": 1, "--schema": 1, "--host": 1}
"""Options, and how many values each takes, which may stand before or after the command."""


def in_their_place(arguments: Sequence[str]) -> list[str]:
    """The arguments with options of the program before the command, and options of commands behind it.

    Nothing moves across `--`, behind which nothing is an option.
    """
    before: list[str] = []
    middle: list[str] = []
    behind: list[str] = []
    rest = list(arguments)
    is_called = False
    while rest and rest[0] != "--":
        name, has_value, _ = rest[0].partition("=")
        known = _OF_THE_PROGRAM | ({} if is_called else _OF_COMMANDS)
        if name not in known:
            is_called = is_called or not name.startswith("-")
            middle.append(rest.pop(0))
            continue
        count = 1 if has_value else 1 + known[name]
        (before if name in _OF_THE_PROGRAM else behind).extend(rest[:count])
        del rest[:count]
    return [*before, *middle, *behind, *rest]


class Program(click.Group):
    """A group that loads a command when it is called, and turns errors into a sentence and an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take shared options wherever they stand."""
        return super().parse_args(ctx, in_their_place(args))

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by heading."""
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called."""
        command = self.commands.get(args[0])
        if isinstance(command, Later):
            self.commands[args[0]] = command.load()
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Run the command; an error becomes a sentence and an exit code."""
        try:
            super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise  # click handles them
        except BrokenPipeError:
            # Python flushes stdout once more at its end, and would report the same error again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(READER_GONE)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, people get a sentence
            if isinstance(ctx.obj, Settings) and ctx.obj.debug:
                click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
            message, code = ending(error, ctx)
            click.echo(f"pytube: {harmless(message)}", err=True)
            ctx.exit(code)


@click.group(cls=Program, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("pytube.toml"),
    envvar="PYTUBE_CONFIG",
    show_default=True,
    show_envvar=True,
    help="Configuration file.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Lowest level to log.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "human", "json"]),
    default="auto",
    show_default=True,
    help="Format of logs, which go to stderr; auto is human on a terminal and json elsewhere.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.version_option(pytube.__version__, prog_name="pytube")
@click.pass_context
def cli(context: click.Context, config_path: Path, log_level: str, log_format: Format, debug: bool) -> None:
    """Keep copies of Postgres data in sync with their source, and prove it."""
    from pytube import logs

    if os.environ.get("NO_COLOR"):
        context.color = False  # click strips styles then, on terminals, too
    logs.configure(log_level, log_format)
    source = context.get_parameter_source("config_path")
    context.obj = Settings(
        config_path,
        is_named=source is not ParameterSource.DEFAULT,
        is_option=source is ParameterSource.COMMANDLINE,
        debug=debug,
    )


for name, (module, summary) in COMMANDS.items():
    cli.add_command(Later(name, module, summary))
