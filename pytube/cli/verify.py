"""`pytube verify`, `pytube wait`, `pytube explain`: is the copy equal to the source, and where is a key?"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pytube.cli.context import config_of, database_options, flag, key_argument, seconds_option, tube_argument
from pytube.cli.output import is_terminal, key_shown, print_json, progress_meter, say, wants_json
from pytube.cli.program import INTERRUPTED, NOT_WELL, TERMINATED, interrupted
from pytube.counts import is_or_are, printable, say_count
from pytube.db.database import Database
from pytube.errors import NotDelivered, UsageError, on_host

if TYPE_CHECKING:
    from pytube.verify import Report

_Answer = TypeVar("_Answer")


@click.command()
@tube_argument()
@click.option("--table", "tables", multiple=True, metavar="TABLE", help="Only this root table; repeatable.")
@click.option(
    "--sample", metavar="N|P%", help="Compare only this many keys, or this percentage of keys, of each table."
)
@flag("--repair", help="Resend the keys that differ.")
@seconds_option(
    "--timeout",
    default=60.0,
    help="Seconds to wait for deliveries before rechecking a key that seems to differ.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the position of an interrupted run.  [default: .pytube-verify-NAME.json]",
)
@database_options(configured=True)
def verify(
    database: Database,
    name: str,
    tables: tuple[str, ...],
    sample: str | None,
    repair: bool,
    timeout: float,
    state: Path | None,
) -> None:
    """Compare a tube's sink with the source.

    Rechecks keys in flight after they are delivered. Exits with 1 if keys differ or could not be checked.
    An interrupted run continues when you start it again.
    """
    from pytube.verify.run import Sample
    from pytube.verify.run import verify as run

    with showing_progress(name) as shown:
        report = _run(
            run(
                config_of(database, name),
                name,
                tables=tables,
                sample=None if sample is None else Sample.parse(sample),
                repair=repair,
                patience=timeout,
                state=state or Path(f".pytube-verify-{name.replace('/', '_')}.json"),
                told=lambda text: tell_verifying(on_host(text, database.host)),
                counted=shown,
            )
        )
    if wants_json():
        print_json(report.as_json())
    else:
        print_report(report)
        if report.parked:
            said = f"parked: `pytube park list {name}` shows why"
            said = f"{report.parked} of them {is_or_are(report.parked)} {said}"
            click.echo(on_host(said, database.host))
        if report.touched:
            said = f"touched; wait for the delivery with: pytube wait {name}"
            said = f"{say_count(report.touched, 'key')} {is_or_are(report.touched)} {said}"
            click.echo(on_host(said, database.host))
    click.get_current_context().exit(0 if report.is_equal else NOT_WELL)


def tell_verifying(text: str) -> None:
    """Print a remark of a verification, beside its result."""
    click.echo(f"pytube: {text}", err=True)


@contextmanager
def showing_progress(tube: str) -> Iterator[Callable[[Report, int], None]]:
    """Yields a function that shows how far a verification is."""
    with progress_meter(err=True) as meter:
        yield lambda report, total: meter(f"verify {tube}", report.compared, total, str(report))


def print_report(report: Report) -> None:
    """The compared keys, the differing ones, and the parts that were not checked."""
    from pytube.verify.report import KINDS

    say(f"{report} ({report.seconds:.1f} s)")
    for kind in KINDS:
        for shard, key in report.examples.get(kind, []):
            click.echo(f"{kind}\tshard {shard}\tid {key_shown(str(key))}")
    for what in report.not_checked:
        say(f"not checked: {what}")


@click.command()
@tube_argument("names", several=True)
@flag("--now", help="Wait for everything committed so far (the default).")
@click.option(
    "--seq",
    type=click.IntRange(min=0),
    help="Wait for all touches up to this seq, including uncommitted ones.",
)
@click.option("--lsn", metavar="LSN", help="Wait for all commits before this WAL position.")
@seconds_option("--timeout", default=60.0, help="Maximum seconds to wait.")
@flag("--ignore-parked", help="Succeed even if keys are parked.")
@database_options()
def wait(
    database: Database,
    names: tuple[str, ...],
    now: bool,
    seq: int | None,
    lsn: str | None,
    timeout: float,
    ignore_parked: bool,
) -> None:
    """Wait until committed changes are at the sink.

    Exits with 1 after the timeout, or if keys are parked.
    """
    from pytube.delivered import wait_async

    if now and (seq is not None or lsn is not None):
        raise UsageError("give only one of --now, --seq, and --lsn")
    began = time.monotonic()
    try:
        delivered = _run(
            wait_async(
                names,
                dsn=database.dsn,
                seq=seq,
                lsn=lsn,
                timeout=timeout,
                ignore_parked=ignore_parked,
                schema=database.schema,
            )
        )
    except NotDelivered as error:
        if wants_json():
            seconds = time.monotonic() - began
            print_json({"is_delivered": False, "tubes": names, "reason": str(error), "seconds": seconds})
        raise
    if wants_json():
        print_json({"is_delivered": True} | asdict(delivered))
        return
    click.echo(f"all touches up to seq {delivered.seq} are delivered ({delivered.seconds:.3f} s)")
    if delivered.parked:
        click.echo(
            f"but for {say_count(delivered.parked, 'key')}, which {is_or_are(delivered.parked)} parked"
        )


@click.command()
@tube_argument()
@key_argument(several=True)
@click.option(
    "--shard", type=int, help="Shard of the key. [default: the shard of the root table that has it]"
)
@click.option("--table", metavar="TABLE", help="Root table of the key, instead of its shard.")
@database_options(configured=True)
def explain(
    database: Database, name: str, key: tuple[str, ...], shard: int | None, table: str | None
) -> None:
    """Show whether a key is queued, in flight, parked, or delivered.

    KEY is the id of the row; give a key of several columns as several arguments. Put -- before negative ids.
    If the sink holds something other than the source, also shows why, and what to do.
    """
    from pytube.verify.explain import explain as run

    found = _run(run(config_of(database, name), name, key, shard=shard, table=table))
    found.host = database.host
    if wants_json():
        print_json(found.as_json())
        return
    of = f"shard {found.shard}" if found.table is None else f"{found.table}, shard {found.shard}"
    click.echo(f"key {key_shown(str(found.id))} of {of}, tube {name}, partition {found.partition}")
    for sentence in found.sentences:
        click.echo(f"- {printable(sentence)}")
    for side, what in (("source", found.source), ("sink", found.sink)):
        if what.exists:
            click.echo(f"{side}: {printable(json.dumps(what.document, ensure_ascii=not is_terminal()))}")


def _run(work: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run it; SIGTERM ends it as SIGINT does, so that its progress is kept."""

    async def until_signal() -> _Answer:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(until_signal())
    except KeyboardInterrupt:
        interrupted(INTERRUPTED)
    except asyncio.CancelledError:
        interrupted(TERMINATED)
