"""The steps until an outbox is as the file declares it. It asks no server."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator

from pytube.config import OutboxConfig
from pytube.config.names import table_name
from pytube.declarations.model import Action, DeclaredOutbox, Kind, Outbox, Plan, Step, There, planned
from pytube.errors import UsageError


def declared_outbox(name: str, section: OutboxConfig) -> DeclaredOutbox:
    """An outbox of the file."""
    table = None if section.adopt is None else table_name(section.adopt)
    said = [section.partitions, section.value_type, str(table), section.wake]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    return DeclaredOutbox(name, section.partitions, section.value_type, table, section.wake, digest)


def plan(outbox: DeclaredOutbox, there: There) -> Plan:
    """All that has to be done about an outbox to make it as it is declared.

    Raises:
        UsageError: the present state can't become it; the message says what to do.
    """
    _refuse(outbox, there)
    now = there.outboxes.get(outbox.name)
    details = {
        "partitions": outbox.partitions or (1 if now is None else now.partitions),
        "value_type": outbox.value_type if now is None else now.value_type,
        "table": None if outbox.table is None else str(outbox.table),
        "wakes": outbox.wakes if outbox.table is not None else True,
    }
    return planned(Kind.OUTBOX, outbox, there, list(_steps(outbox, now)), details)


def _steps(outbox: DeclaredOutbox, now: Outbox | None) -> Iterator[Step]:
    name = outbox.name
    waking = "wake workers" if outbox.wakes else "do not wake workers, which poll"
    if now is None:
        count = outbox.partitions or 1
        if outbox.table is None:
            text = f"make outbox {name}: values {outbox.value_type or 'text'}, partitions {count}"
        else:
            text = f"adopt {outbox.table} as outbox {name}: partitions {count}; writers {waking}"
        yield Step(Kind.OUTBOX, Action.MAKE, name, text, outbox.table)
    else:
        if outbox.partitions not in (None, now.partitions):
            text = f"give outbox {name} partitions {outbox.partitions}, not {now.partitions}"
            yield Step(Kind.OUTBOX, Action.PARTITIONS, name, text)
        if now.adopted and now.wakes != outbox.wakes:
            yield Step(Kind.OUTBOX, Action.WAKE, name, f"have writers of {now.table} {waking}", now.table)
    if now is None or now.applied != outbox.digest:
        yield Step(Kind.OUTBOX, Action.DECLARE, name, "note that the file declares it so")


def _refuse(outbox: DeclaredOutbox, there: There) -> None:
    """Refuse a present outbox that can't become the declared one.

    Raises:
        UsageError: the reason.
    """
    name = outbox.name
    if name in there.tubes:
        raise UsageError(f"outbox.{name}: {name} is a tube; give the outbox another name")
    now = there.outboxes.get(name)
    if now is None:
        return
    command = f"pytube outbox drop {shlex.quote(name)}"
    again = f"declare an outbox of another name, or drop this one first (`{command}`)"
    if outbox.value_type not in (None, now.value_type):
        raise UsageError(
            f"outbox.{name}.value_type: the values of outbox {name} are {now.value_type}, for good; {again}"
        )
    if now.adopted != (outbox.table is not None) or (now.adopted and now.table != outbox.table):
        has = f"the table {now.table or 'that was dropped'}" if now.adopted else "its own table"
        wanted = "its own table" if outbox.table is None else f"the table {outbox.table}"
        raise UsageError(f"outbox.{name}.adopt: outbox {name} uses {has}, not {wanted}; {again}")
    if now.applied is None and now.adopted and now.wakes != outbox.wakes:
        raise UsageError(
            f"outbox.{name}.wake: {now.table} was adopted manually, with wake = "
            f"{'true' if now.wakes else 'false'}; set the same in the file, or run `pytube outbox adopt "
            f"{shlex.quote(name)} {shlex.quote(str(now.table))} {'--wake' if outbox.wakes else '--no-wake'}`"
        )
