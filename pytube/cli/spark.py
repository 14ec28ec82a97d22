"""`pytube spark …`: work of PySpark on this machine; on a cluster, see `examples/`."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pytube.cli.context import Session, current_settings, database_options, flag, tube_argument
from pytube.cli.output import Table, print_json, print_table, progress_meter, say, tell, wants_json
from pytube.cli.program import NOT_WELL
from pytube.counts import is_or_are, say_count
from pytube.db.database import Database
from pytube.errors import ConfigError, DatabaseUnavailable, PytubeError, UsageError, how_to_install
from pytube.model import KeyType
from pytube.tubes.tables import find_table
from pytube.tubes.tables import jobs as all_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pytube.config import TubeConfig

_FORMATS = ("parquet", "json", "csv", "orc")

_ID = click.option("--id", "key", default="id", metavar="COLUMN", help="Column with the ids.")
_RELATION = click.option(
    "--relation",
    metavar="TABLE[.COLUMN]",
    help="The ids are values by which documents of the tube follow this table, such as ids of products.",
)
_JOB = click.option(
    "--job",
    "job_id",
    metavar="NAME",
    help="Name of the job; run again under the same name, it writes only the missing part. "
    "[default: a new name]",
)
_OP = click.option(
    "--op",
    type=click.Choice(list("IUDTB")),
    default="B",
    help="Kind of the pods: B goes behind live changes, the others in turn with them.",
)

_EVERY = 1.0
"""Seconds between two looks at the progress."""


@click.group()
def spark() -> None:
    """Run fan-outs, backfills, and reconciliation with PySpark."""


def _spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a database and of a Spark session, which `session` starts."""

    @click.option("--cores", default="*", metavar="N", help="Number of parallel tasks.")
    @click.option(
        "--connections",
        "max_connections",
        type=click.IntRange(min=1),
        default=4,
        help="Number of connections to the database.",
    )
    @click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting; repeatable.")
    @database_options()
    @functools.wraps(command)
    def wrapper(*arguments: Any, cores: str, conf: tuple[str, ...], **options: Any) -> Any:
        try:
            import pyspark  # noqa: F401 # is it there?
        except ImportError:
            raise ConfigError(f"Spark is not installed: {how_to_install('spark')}") from None
        from pytube.spark.session import local, sentence

        settings = dict(pair.partition("=")[::2] for pair in conf)
        try:
            return command(*arguments, session=functools.partial(local, cores, settings), **options)
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "pyspark":
                raise
            raise PytubeError(sentence(error)) from error  # such as for a missing file at another place

    return wrapper


@spark.command()
@tube_argument("tubes", several=True)
@click.option(
    "--input", "path", required=True, metavar="PATH", help="A file or directory that Spark can read."
)
@click.option("--format", "kind", type=click.Choice(_FORMATS), default="parquet", help="Format of the files.")
@_ID
@click.option(
    "--shard", metavar="COLUMN|N", help="Shard of the ids. [default: that of the only attached table]"
)
@_OP
@_RELATION
@_JOB
@flag("--staged", help="Make all of them visible at once, at the end.")
@_spark_options
def touch(
    database: Database,
    session: Callable[[], SparkSession],
    tubes: tuple[str, ...],
    path: str,
    kind: str,
    key: str,
    shard: str | None,
    staged: bool,
    **options: Any,
) -> None:
    """Resend the ids in files."""
    from pytube import spark as of_spark

    check_path(path)
    texts = () if has_numbers(database, tubes, options["relation"]) else (key,)
    with showing_progress(database, options["job_id"]):
        df = read(session(), kind, path, texts)
        done = of_spark.touch(
            df,
            tubes=tubes,
            dsn=host_of(database),
            id=key,
            shard=number_or_name(shard),
            publish="staged" if staged else "direct",
            **options,
        )
    tell_touched(done)


@spark.command()
@tube_argument("tubes", several=True)
@click.option("--query", required=True, metavar="SQL", help="A SELECT whose first column is the id.")
@click.option("--shard", type=click.IntRange(min=0), default=0, help="Shard of the ids.")
@click.option("--ranges", type=click.IntRange(min=1), default=32, help="Number of id ranges.")
@_OP
@_RELATION
@_JOB
@_spark_options
def fanout(
    database: Database,
    session: Callable[[], SparkSession],
    tubes: tuple[str, ...],
    query: str,
    **options: Any,
) -> None:
    """Resend the ids of a query, several ranges in parallel."""
    from pytube import spark as of_spark

    has_numbers(database, tubes, options["relation"])  # that is: they are there
    with showing_progress(database, options["job_id"]):
        done = of_spark.fanout_sql(session(), query, tubes=tubes, dsn=host_of(database), **options)
    tell_touched(done)


@spark.command()
@tube_argument("tube")
@click.option("--table", required=True, metavar="TABLE", help="Table to backfill, as schema.table.")
@click.option("--order-col", metavar="COLUMN", help="Resend in roughly this order. [default: the id column]")
@click.option("--ranges", type=click.IntRange(min=1), default=64, help="Number of id ranges.")
@click.option(
    "--backlog", type=click.IntRange(min=1), help="Pause while this many backfill pods wait in the tube."
)
@flag("--supersede", help="Replace a backfill of the table that is in progress.")
@_spark_options
def backfill(
    database: Database, session: Callable[[], SparkSession], tube: str, table: str, **options: Any
) -> None:
    """Backfill a table, several ranges in parallel; resumable.

    `pytube backfill status`, `pause`, and `cancel` work on it.
    """
    from pytube import spark as of_spark

    has_numbers(database, [tube])
    check_table(database, table)
    job: list[str] = []
    with showing_progress(database, job):
        done = of_spark.backfill(
            session(),
            tube,
            table,
            dsn=host_of(database),
            began=lambda number: job.append(f"backfill {number}"),
            **options,
        )
    tell(
        f"backfill {', '.join(map(str, done.backfill_ids))}: {say_count(done.rows, 'row')} "
        f"{is_or_are(done.rows)} in the tube, in {done.seconds:.1f} s",
        {"backfill_ids": done.backfill_ids, "rows": done.rows, "seconds": done.seconds},
    )


@spark.command()
@click.option("--source", "table", required=True, metavar="TABLE", help="Source table, as schema.table.")
@click.option(
    "--sink", "path", required=True, metavar="PATH", help="The sink's content: a file or directory."
)
@click.option(
    "--format",
    "kind",
    type=click.Choice([*_FORMATS, "jsonl"]),
    help="jsonl is the output of pytube's jsonl sink. [default: detected from the first line]",
)
@click.option(
    "--sink-tube", metavar="NAME", help="For jsonl: the tube. [default: that of --tube, or the only one]"
)
@_ID
@click.option("--columns", metavar="COLUMN,...", help="Columns to compare. [default: the columns both have]")
@click.option(
    "--shard", metavar="COLUMN|N", help="Shard of the ids. [default: that of the only attached table]"
)
@click.option(
    "--keys",
    "key_type",
    type=click.Choice([kind.value for kind in KeyType]),
    help="Type of the ids. [default: that of the tube or the table]",
)
@click.option(
    "--tube",
    "tubes",
    multiple=True,
    metavar="NAME",
    help="Resend differences through this tube. [default: only report them]",
)
@_JOB
@_spark_options
def reconcile(
    database: Database,
    session: Callable[[], SparkSession],
    table: str,
    path: str,
    kind: str | None,
    sink_tube: str | None,
    key: str,
    columns: str | None,
    shard: str | None,
    key_type: str | None,
    tubes: tuple[str, ...],
    job_id: str | None,
    max_connections: int,
) -> None:
    """Compare a table with a sink's content; resend differences.

    Exits with 1 if something differs and --tube is not given.
    """
    from pytube import spark as of_spark

    check_path(path)
    check_table(database, table)
    check_whole({*tubes, sink_tube})
    if tubes:
        has_numbers(database, tubes)
    place = number_or_name(shard)
    if sink_tube is None and len(tubes) == 1:
        sink_tube = tubes[0]
    spark_session = session()
    named: dict[str, Any] = {"job_id": job_id} if job_id else {}
    with of_spark.snapshot(spark_session, host_of(database)) as moment:
        rows = moment.table(table, partitions=max_connections)
        found = of_spark.reconcile(
            rows,
            read_sink(spark_session, kind, path, rows, key, sink_tube, place),
            key,
            columns.split(",") if columns else None,
            tubes=tubes,
            dsn=host_of(database),
            shard=place,
            key_type=key_type,
            told=None,
            max_connections=max_connections,
            **named,
        )
    if wants_json():
        counts = {name: getattr(found, name) for name in ("source", "sink", "missing", "extra", "different")}
        print_json(
            counts | {"touched": found.touched.ids if found.touched else 0, "examples": found.examples}
        )
    else:
        say(str(found))
        for what, number, id_ in found.examples:
            say(f"  {what}: id {id_}" + ("" if number is None else f" of shard {number}"))
    if not found.is_equal and not tubes:
        click.get_current_context().exit(NOT_WELL)


@spark.command()
@database_options(opens=Session)
def jobs(at: Session) -> None:
    """Show Spark jobs, newest first."""
    rows = all_jobs(at.connection, at.schema)
    table: Table = {
        "job": "job_id",
        "tubes": lambda row: ", ".join(row["tubes"]),
        "state": "state",
        "units in": "units_done",
        "of": "units",
        "ids": "ids",
    }
    print_table(table, rows, "there was no job yet")


# --- shared by them: a session, files, and the progress of a job ----------------------------


def host_of(database: Database) -> Any:
    """The database for Spark's side."""
    from pytube.spark.hosts import Host

    return Host(database.dsn.get_secret_value(), database.schema)


def number_or_name(shard: str | None) -> str | int | None:
    """The option `--shard`: a number, or a column's name."""
    return int(shard) if shard is not None and shard.isdecimal() else shard


def check_path(path: str) -> None:
    """Raise `ConfigError` if there is no such file on this machine; of other places Spark will say so."""
    if "://" not in path and not (Path(path).exists() or glob(path)):  # noqa: PTH207 # a pattern of any folder
        raise ConfigError(f"there is no file or folder {path}")


def check_table(database: Database, table: str) -> None:
    """Raise `UnknownTable` if there is no such table."""
    with database.connect() as connection:
        find_table(connection, table)


def check_whole(tubes: Iterable[str | None]) -> None:
    """Raise `UsageError` if the configuration splits documents of one of the tubes."""
    configured: Mapping[str, TubeConfig] = {}
    with suppress(ConfigError):  # the file is optional here
        configured = current_settings().config().tubes
    for name in tubes:
        if name is not None and name in configured and configured[name].sink.parts is not None:
            raise UsageError(
                f"tube {name!r} splits its documents (key `parts` of its sink), and Spark compares rows with "
                f"whole documents; use `pytube verify {name}`"
            )


def has_numbers(database: Database, tubes: Sequence[str], relation: str | None = None) -> bool:
    """Whether the keys of tubes, or the links of a relation, are numbers; raises `UnknownTube`."""
    from pytube.spark.hosts import shard_map
    from pytube.spark.job import kind_of_tubes
    from pytube.spark.touch import by_relation

    if relation is not None:
        tubes, _ = by_relation(shard_map(host_of(database)), tuple(tubes), relation)
    with host_of(database).connect() as connection:
        return bool(kind_of_tubes(connection, tubes).is_number)


def read(session: SparkSession, kind: str, path: str, texts: Collection[str] = ()) -> DataFrame:
    """Files as a DataFrame. Of CSV, which has no types, the columns `texts` are not taken for numbers."""
    reader = session.read.format(kind)
    if kind == "csv":
        reader = reader.options(header=True, inferSchema=True)
        found = reader.load(path).schema
        names = [f"`{field.name.replace('`', '``')}`" for field in found]
        kinds = ["string" if field.name in texts else field.dataType.simpleString() for field in found]
        reader = reader.schema(", ".join(map(" ".join, zip(names, kinds, strict=True))))
    return reader.load(path)


def read_sink(
    session: SparkSession,
    kind: str | None,
    path: str,
    rows: DataFrame,
    key: str,
    tube: str | None,
    shard: str | int | None,
) -> DataFrame:
    """What a sink has, to be compared with `rows`: an export, or the log of the sink `jsonl`."""
    from pytube.spark.reconcile import is_log, jsonl_documents

    if kind == "jsonl" or (kind is None and is_log(session, path)):
        return jsonl_documents(session, path, rows, key, tube=tube, shard=shard)
    texts = [name for name, of_type in rows.dtypes if name == key and of_type == "string"]
    return read(session, kind or "json", path, texts)


def tell_touched(done: Any) -> None:
    """Print the result of a fan-out."""
    if wants_json():
        names = ("job_id", "rows", "ids", "pods", "units", "seconds")
        print_json({name: getattr(done, name) for name in names})
    elif done.units == 0:
        click.echo(f"job {done.job_id} was finished before: {_made(done)}; nothing was written now")
    else:
        click.echo(f"{_made(done)}, in {done.seconds:.1f} s (job {done.job_id})")


def _made(done: Any) -> str:
    return f"{say_count(done.ids, 'id')} in {say_count(done.pods, 'pod')}"


@contextmanager
def showing_progress(database: Database, job: str | list[str] | None) -> Iterator[None]:
    """Meanwhile, show how far a job is."""
    if wants_json() or job is None:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(database, job, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _follow(database: Database, job: str | list[str], over: threading.Event) -> None:
    began = time.monotonic()
    with progress_meter(err=True) as meter:
        while not over.wait(_EVERY):
            name = job if isinstance(job, str) else job[-1] if job else None
            if name is None:
                continue
            try:
                with database.connect() as connection:
                    rows = all_jobs(connection, database.schema, name)
            except DatabaseUnavailable:
                continue  # the job itself reports it
            for row in rows[:1]:
                rate = row["ids"] / (time.monotonic() - began)
                detail = f"{row['units_done']} of {row['units']} units, {row['ids']} ids, {rate:,.0f} ids/s"
                meter(f"job {name}", row["units_done"], row["units"], detail)
