"""What the commands of `pytube spark` share: a session, files, and a line that shows how far a job is."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from pytube.cli.output import print_json
from pytube.cli.program import Settings
from pytube.counts import say_count
from pytube.db.database import Database
from pytube.errors import ConfigError, DatabaseUnavailable, PytubeError, UsageError, how_to_install
from pytube.tubes.tables import find_table, jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pytube.config import TubeConfig

_EVERY = 1.0
"""Seconds between two looks at the progress; five times as many where it goes to a file."""


def package() -> ModuleType:
    """The package; `ConfigError` where Spark is not installed."""
    try:
        import pyspark  # noqa: F401 # is it there?
    except ImportError:
        raise ConfigError(f"Spark is not installed: {how_to_install('spark')}") from None
    import pytube.spark

    return pytube.spark


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise what Spark raises, such as for a missing file at another place, as a sentence."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "pyspark":
            raise
        from pytube.spark.session import sentence

        raise PytubeError(sentence(error)) from error


def start_session(cores: str, settings: dict[str, str]) -> SparkSession:
    """A Spark session on this machine."""
    from pytube.spark.session import local

    return local(cores, settings)


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


def check_whole(settings: Settings, tubes: Iterable[str | None]) -> None:
    """Raise `UsageError` if the configuration splits documents of one of the tubes."""
    configured: Mapping[str, TubeConfig] = {}
    with suppress(ConfigError):  # what else is wrong with a file that need not be there is no concern of ours
        configured = settings.config().tubes
    for name in tubes:
        if name is not None and name in configured and configured[name].sink.parts is not None:
            raise UsageError(
                f"tube {name!r} splits its documents (key `parts` of its sink), and Spark compares rows with "
                f"whole documents; use `pytube verify --tube {name}`"
            )


def has_numbers(database: Database, tubes: Sequence[str]) -> bool:
    """Whether the keys of tubes are numbers; raises `UnknownTube` if there is no such tube."""
    from pytube.spark.job import kind_of_tubes

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
    from pytube.spark import jsonl

    if kind == "jsonl" or (kind is None and jsonl.is_log(session, path)):
        return jsonl.documents(session, path, rows, key, tube=tube, shard=shard)
    texts = [name for name, of_type in rows.dtypes if name == key and of_type == "string"]
    return read(session, kind or "json", path, texts)


def tell_touched(done: Any, *, as_json: bool) -> None:
    """Say what a fan-out has written."""
    if as_json:
        names = ("job_id", "rows", "ids", "pods", "units", "seconds")
        print_json({name: getattr(done, name) for name in names})
    elif done.units == 0:
        click.echo(f"job {done.job_id} was finished before: {_made(done)}; nothing was written now")
    else:
        click.echo(f"{_made(done)}, in {done.seconds:.1f} s (job {done.job_id})")


def _made(done: Any) -> str:
    return f"{say_count(done.ids, 'id')} in {say_count(done.pods, 'pod')}"


@contextmanager
def showing_progress(database: Database, job: str | list[str] | None, *, as_json: bool) -> Iterator[None]:
    """Meanwhile, show how far a job is."""
    if as_json or job is None:
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
    began, last = time.monotonic(), ""
    terminal = sys.stderr.isatty()
    while not over.wait(_EVERY if terminal else 5 * _EVERY):
        name = job if isinstance(job, str) else job[0] if job else None
        try:
            rows = _progress(database, name) if name else []
        except DatabaseUnavailable:
            continue  # the one who does the work will say so
        if rows:
            row = rows[0]
            rate = row["ids"] / (time.monotonic() - began)
            line = f"{row['units_done']} of {row['units']} units, {row['ids']} ids, {rate:,.0f} a second"
            if line != last:
                click.echo(f"\r\x1b[K{line}" if terminal else line, err=True, nl=not terminal)
                last = line
    if terminal and last:
        click.echo("", err=True)


def _progress(database: Database, job: str) -> list[dict[str, Any]]:
    with database.connect() as connection:
        return jobs(connection, database.schema, job)
