"""`pytube spark …`: what PySpark does, on this machine; on a cluster, see `examples/`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pytube.cli.context import database_options, json_option
from pytube.cli.output import print_json, print_list
from pytube.cli.program import Settings
from pytube.cli.spark_work import (
    check_path,
    check_table,
    check_whole,
    has_numbers,
    host_of,
    number_or_name,
    package,
    read,
    read_sink,
    showing_progress,
    spark_errors,
    start_session,
    tell_touched,
)
from pytube.counts import is_or_are, say_count
from pytube.db.database import Database
from pytube.model import KeyType
from pytube.tubes.tables import jobs as all_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORMATS = ("parquet", "json", "csv", "orc")

_TUBE = click.option("--tube", "tubes", multiple=True, required=True, metavar="NAME", help="One, or several.")
_JOB = click.option(
    "--job",
    metavar="NAME",
    help="What is run again under the same name writes only what is missing. Default: a new one.",
)
_OP = click.option(
    "--op", type=click.Choice(list("IUDTB")), default="T", show_default=True, help="B: at low priority."
)


@click.group()
def spark() -> None:
    """Fan-outs, backfills and reconciliation by PySpark, on this machine."""


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what a Spark session wants, as `session`, which starts it."""

    @click.option("--cores", default="*", show_default=True, metavar="N", help="Tasks at a time.")
    @click.option(
        "--connections", type=click.IntRange(min=1), default=4, show_default=True, help="To the database."
    )
    @click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark.")
    @functools.wraps(command)
    def wrapper(*arguments: Any, cores: str, conf: tuple[str, ...], **options: Any) -> Any:
        settings = dict(pair.partition("=")[::2] for pair in conf)
        with spark_errors():
            return command(*arguments, session=functools.partial(start_session, cores, settings), **options)

    return wrapper


@spark.command()
@_TUBE
@click.option("--input", "path", required=True, metavar="PATH", help="A file or folder, as Spark reads it.")
@click.option("--format", "kind", type=click.Choice(_FORMATS), default="parquet", show_default=True)
@click.option("--id", "key", default="id", show_default=True, metavar="COLUMN")
@click.option("--shard", metavar="COLUMN|N", help="Default: that of the one table that is attached.")
@_OP
@_JOB
@click.option("--staged", is_flag=True, help="All at once, at the end.")
@spark_options
@json_option
@database_options()
def touch(
    database: Database,
    session: Callable[[], SparkSession],
    tubes: tuple[str, ...],
    path: str,
    kind: str,
    key: str,
    shard: str | None,
    op: str,
    job: str | None,
    staged: bool,
    connections: int,
    as_json: bool,
) -> None:
    """Touch the ids that are in files."""
    of_spark = package()
    check_path(path)
    texts = () if has_numbers(database, tubes) else (key,)
    with showing_progress(database, job, as_json=as_json):
        df = read(session(), kind, path, texts)
        done = of_spark.touch(
            df,
            tubes=tubes,
            dsn=host_of(database),
            op=op,
            id=key,
            shard=number_or_name(shard),
            job_id=job,
            publish="staged" if staged else "direct",
            max_connections=connections,
        )
    tell_touched(done, as_json=as_json)


@spark.command()
@_TUBE
@click.option("--query", required=True, metavar="SQL", help="A SELECT whose first column is the id.")
@click.option("--shard", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--ranges", type=click.IntRange(min=1), default=32, show_default=True, help="Of the ids.")
@_OP
@_JOB
@spark_options
@json_option
@database_options()
def fanout(
    database: Database,
    session: Callable[[], SparkSession],
    tubes: tuple[str, ...],
    query: str,
    shard: int,
    ranges: int,
    op: str,
    job: str | None,
    connections: int,
    as_json: bool,
) -> None:
    """Touch the ids that a query gives, several ranges of them at a time."""
    of_spark = package()
    has_numbers(database, tubes)  # that is: they are there
    with showing_progress(database, job, as_json=as_json):
        done = of_spark.fanout_sql(
            session(),
            query,
            tubes=tubes,
            dsn=host_of(database),
            shard=shard,
            op=op,
            ranges=ranges,
            job_id=job,
            max_connections=connections,
        )
    tell_touched(done, as_json=as_json)


@spark.command()
@click.option("--tube", required=True, metavar="NAME", help="The tube.")
@click.option("--table", required=True, metavar="NAME", help="schema.table")
@click.option("--order-col", metavar="COLUMN", help="Touch in about this order; default: the ids'.")
@click.option("--ranges", type=click.IntRange(min=1), default=64, show_default=True)
@click.option(
    "--backlog", type=click.IntRange(min=1), help="Pause while this many backfill pods wait in the tube."
)
@click.option("--supersede", is_flag=True, help="End the one that is under way for the table.")
@spark_options
@json_option
@database_options()
def backfill(
    database: Database,
    session: Callable[[], SparkSession],
    tube: str,
    table: str,
    order_col: str | None,
    ranges: int,
    backlog: int | None,
    supersede: bool,
    connections: int,
    as_json: bool,
) -> None:
    """Backfill a table, several ranges of it at a time; one that was interrupted goes on.

    `pytube backfill status`, `pause` and `cancel` know it like any other.
    """
    of_spark = package()
    has_numbers(database, [tube])
    check_table(database, table)
    job: list[str] = []
    with showing_progress(database, job, as_json=as_json):
        done = of_spark.backfill(
            session(),
            tube,
            table,
            order_col,
            dsn=host_of(database),
            ranges=ranges,
            backlog=backlog,
            supersede=supersede,
            max_connections=connections,
            began=lambda number: job.append(f"backfill {number}"),
        )
    if as_json:
        print_json({"backfill_id": done.backfill_id, "rows": done.rows, "seconds": done.seconds})
    else:
        click.echo(
            f"backfill {done.backfill_id}: {say_count(done.rows, 'row')} {is_or_are(done.rows)} in the tube, "
            f"in {done.seconds:.1f} s"
        )


@spark.command()
@click.option("--source", "table", required=True, metavar="TABLE", help="schema.table, what is true.")
@click.option("--sink", "path", required=True, metavar="PATH", help="What the sink has: a file or folder.")
@click.option(
    "--format",
    "kind",
    type=click.Choice([*_FORMATS, "jsonl"]),
    help="jsonl: what our sink has written. Default: json, or jsonl if the first line is of our sink.",
)
@click.option(
    "--sink-tube", metavar="NAME", help="Of jsonl: the tube. Default: that of --tube, or the only one."
)
@click.option("--id", "key", default="id", show_default=True, metavar="COLUMN")
@click.option("--columns", metavar="A,B", help="To compare; default: those that both have.")
@click.option("--shard", metavar="COLUMN|N", help="Default: that of the one table that is attached.")
@click.option(
    "--keys",
    "key_type",
    type=click.Choice([kind.value for kind in KeyType]),
    help="What the ids are; default: what those of the tube are, or of the table.",
)
@click.option(
    "--tube", "tubes", multiple=True, metavar="NAME", help="Touch what differs; default: only tell."
)
@_JOB
@spark_options
@json_option
@database_options()
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
    job: str | None,
    connections: int,
    as_json: bool,
) -> None:
    """Compare a table with what a sink has, and touch what differs.

    Exit code 1 when something differs and nothing is touched.
    """
    of_spark = package()
    check_path(path)
    check_table(database, table)
    settings = click.get_current_context().find_object(Settings)
    assert settings is not None
    check_whole(settings, {*tubes, sink_tube})
    if tubes:
        has_numbers(database, tubes)
    place = number_or_name(shard)
    if sink_tube is None and len(tubes) == 1:
        sink_tube = tubes[0]
    spark_session = session()
    with of_spark.snapshot(spark_session, host_of(database)) as moment:
        rows = moment.table(table, partitions=connections)
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
            max_connections=connections,
            **({"job_id": job} if job else {}),
        )
    if as_json:
        counts = {name: getattr(found, name) for name in ("source", "sink", "missing", "extra", "different")}
        print_json(
            counts | {"touched": found.touched.ids if found.touched else 0, "examples": found.examples}
        )
    else:
        click.echo(str(found))
        for what, number, id_ in found.examples:
            click.echo(f"  {what}: id {id_}" + ("" if number is None else f" of shard {number}"))
    if not found.is_equal and not tubes:
        click.get_current_context().exit(1)


@spark.command()
@json_option
@database_options()
def jobs(database: Database, as_json: bool) -> None:
    """Show fan-outs and backfills that are written in units, the newest first."""
    with database.connect() as connection:
        rows = all_jobs(connection, database.schema)
    columns = {
        "job_id": "job",
        "tubes": "tubes",
        "state": "state",
        "units_done": "units in",
        "units": "of",
        "ids": "ids",
    }
    print_list(
        columns,
        rows,
        "there was no job yet",
        as_json=as_json,
        shown=lambda row: {"tubes": ", ".join(row["tubes"])},
    )
