"""`pytube outbox pump`: a load generator."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pytube.cli.context import Database, database_options, json_option
from pytube.cli.output import (
    console,
    heading_line,
    is_terminal,
    lines,
    print_json,
    seconds,
    shown,
    terminal_width,
)
from pytube.outbox.admin import Outboxes
from pytube.outbox.pump import Load, Pump, PumpReading, planned

if TYPE_CHECKING:
    from types import FrameType

_COLUMNS = {
    "seconds": "time",
    "records": "records",
    "transactions": "transactions",
    "rate": "records/s",
    "transaction": "a transaction takes",
}
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command()
@click.argument("name")
@click.option("--topic", help="The topic of the messages.  [default: NAME]")
@click.option(
    "--rate",
    type=click.FloatRange(min=0),
    help="Records per second; 0: as many as go.  [default: 1000]",
)
@click.option(
    "--transactions",
    type=click.FloatRange(min=0, min_open=True),
    help="Transactions per second, in place of --rate or --batch.",
)
@click.option("--batch", type=click.IntRange(min=1), help="Records of a transaction.  [default: 10]")
@click.option(
    "--keys",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Different keys; 0: messages without a key.",
)
@click.option("--size", type=click.IntRange(min=0), default=100, show_default=True, help="Bytes of a value.")
@click.option(
    "--headers", type=click.IntRange(min=0), default=0, show_default=True, help="Headers of a message."
)
@click.option(
    "--duration",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds.  [default: until it is interrupted]",
)
@json_option
@database_options
def pump(
    database: Database,
    name: str,
    topic: str | None,
    rate: float | None,
    transactions: float | None,
    batch: int | None,
    keys: int,
    size: int,
    headers: int,
    duration: float | None,
    as_json: bool,
) -> None:
    """Write messages into the outbox NAME at a steady rate, to see how it and its consumers bear that.

    The messages are real: workers deliver them, and consumers of the topic get them. Each value begins with
    the running number of the record within its key. SIGINT and SIGTERM end it after the transaction under
    way; the last line is the sum.
    """
    records, pace = planned(rate, transactions, batch)
    load = Load(topic or name, keys, size, headers, records, pace)
    with database.connect() as connection, _stopping() as stop, _display(as_json=as_json) as show:
        Outboxes(connection, database.schema)
        work = Pump(connection, name, load, database.schema)
        try:
            work.run(duration, stop, show)
        finally:
            show(work.total())  # also where the database went away: so much was committed


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that the first signal sets. A second one ends the program, as it would have without us."""
    stop = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _display(*, as_json: bool) -> Iterator[Callable[[PumpReading], None]]:
    """What shows readings: one row that changes on a terminal, a line each in a pipe, or JSON."""
    if as_json:
        yield lambda reading: print_json(asdict(reading))
    elif is_terminal():
        from rich.live import Live
        from rich.text import Text

        with Live(console=console(), auto_refresh=False) as live:
            yield lambda reading: live.update(
                Text.from_ansi("\n".join(shown(_COLUMNS, [_row(reading)], terminal_width()))), refresh=True
            )
    else:
        click.echo(heading_line(_COLUMNS))
        yield lambda reading: click.echo(lines(_COLUMNS, [_row(reading)])[0])  # which flushes


def _row(reading: PumpReading) -> dict[str, Any]:
    return asdict(reading) | {
        "seconds": f"{reading.seconds:.1f} s",
        "rate": f"{reading.rate:.0f}",
        "transaction": seconds(reading.transaction),
    }
