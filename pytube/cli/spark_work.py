"""What the commands of `pytube spark` share: a session, files, and a line that shows how far a job is."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from pytube.cli.context import Database
from pytube.cli.output import print_json
from pytube.errors import ConfigError, DatabaseUnavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EVERY = 1.0
"""Seconds between two looks at the progress; five times as many where it goes to a file."""


def package() -> ModuleType:
    """The package; `ConfigError` where Spark is not installed."""
    try:
        import pyspark  # noqa: F401 # is it there?
    except ImportError:
        raise ConfigError("Spark is not installed: pip install 'pytube-pg[spark]'") from None
    import pytube.spark

    return pytube.spark


def start_session(cores: str, settings: dict[str, str]) -> SparkSession:
    """A Spark session on this machine."""
    from pytube.spark.session import local

    return local(cores, settings)


def host_of(database: Database) -> Any:
    """The database for Spark's side."""
    from pytube.spark.hosts import Host

    return Host(database.dsn.get_secret_value(), database.schema)


def has_numbers(database: Database, tubes: Sequence[str]) -> bool:
    """Whether the keys of tubes are numbers."""
    from pytube.spark.job import kind_of_tubes

    with host_of(database).connect() as connection:
        return bool(kind_of_tubes(connection, tubes).is_number)


def read(session: SparkSession, kind: str, path: str, texts: Collection[str] = ()) -> DataFrame:
    """Files as a DataFrame. Of CSV, which has no types, the columns `texts` are not taken for numbers."""
    if not Path(path).exists() and "://" not in path:
        raise ConfigError(f"there is no file or folder {path}")
    reader = session.read.format(kind)
    if kind == "csv":
        reader = reader.options(header=True, inferSchema=True)
        found = reader.load(path).schema
        names = [f"`{field.name.replace('`', '``')}`" for field in found]
        kinds = ["string" if field.name in texts else field.dataType.simpleString() for field in found]
        reader = reader.schema(", ".join(map(" ".join, zip(names, kinds, strict=True))))
    return reader.load(path)


def tell_touched(done: Any, *, as_json: bool) -> None:
    """Say what a fan-out has written."""
    if as_json:
        names = ("job_id", "rows", "ids", "pods", "units", "seconds")
        print_json({name: getattr(done, name) for name in names})
    else:
        click.echo(f"{done.ids} ids in {done.pods} pods, in {done.seconds:.1f} s (job {done.job_id})")


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
    from pytube.spark.job import progress

    began, last = time.monotonic(), ""
    terminal = sys.stderr.isatty()
    while not over.wait(_EVERY if terminal else 5 * _EVERY):
        name = job if isinstance(job, str) else job[0] if job else None
        try:
            rows = progress(host_of(database), name) if name else []
        except DatabaseUnavailable:
            continue  # whoever does the work will say so
        if rows:
            row = rows[0]
            rate = row["ids"] / (time.monotonic() - began)
            line = f"{row['units_done']} of {row['units']} units, {row['ids']} ids, {rate:,.0f} a second"
            if line != last:
                click.echo(f"\r\x1b[K{line}" if terminal else line, err=True, nl=not terminal)
                last = line
    if terminal and last:
        click.echo("", err=True)
