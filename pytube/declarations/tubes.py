"""The steps until a tube, or an outbox, is as the file declares it."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

import psycopg

from pytube.config import OutboxConfig, TubeConfig
from pytube.config.names import table_name
from pytube.config.section import key_path
from pytube.config.tubes import Attached, attachments
from pytube.declarations.model import (
    Action,
    DeclaredOutbox,
    DeclaredTube,
    Kind,
    Outbox,
    Plan,
    Step,
    There,
    planned,
    shards_begin,
    widens,
)
from pytube.documents.catalogue import Catalogue, Column
from pytube.documents.catalogue import Table as KnownTable
from pytube.documents.model import Tube
from pytube.errors import ConfigError, InvalidShard, KeysWouldChange, RelatedTables, UsageError
from pytube.keys import MOST_COLUMNS, PartType
from pytube.model import KeyType
from pytube.tubes import queries
from pytube.tubes.attachments import Manner, changes

# --- what the file declares -------------------------------------------------------------------------


def declared_tube(
    name: str,
    section: TubeConfig,
    now: Tube | None,
    connection: psycopg.Connection,
    schema: str,
    first_shard: int | None = None,
) -> DeclaredTube:
    """A tube of the file; `now`: as it is in the database. `first_shard`: as `Config` has it.

    Raises:
        ConfigError: a table or a column is not there, or can't be followed so.
    """
    key_type = KeyType.BIGINT if now is None else now.key_type
    if section.key_type is not None:
        key_type = KeyType(section.key_type)
    catalogue = Catalogue(connection)
    tables: list[Attached] = []
    declared = attachments(section.tables)
    said = {
        one.table  # or its schema's name has the number of the shard
        for one, written in zip(declared, section.tables.values(), strict=True)
        if written.shard is not None or one.shard
    }
    begin = shards_begin(declared, now, first_shard, said)
    for one in (replace(one, shard=begin + one.shard) for one in declared):
        where = key_path(("tube", name, "tables", str(one.table)))
        table = catalogue.table(one.table, where)
        new, was = one, None if now is None else now.table(one.table)
        if not one.key and was is not None:  # what the file leaves out of these two is as it is
            new = replace(one, key=was.key, shard_by=was.shard_by)
        elif not one.key:
            new = replace(one, key=(_key_of(table, where, connection, schema),))
        _check_columns(where, table, new)
        _check_types(name, where, [table.columns[each] for each in new.key], table, key_type)
        root = next((each for each in tables if each.root and each.same_shards(new)), None)
        if root is not None:
            _check_related(where, new, root, catalogue)
        tables.append(new)
    predicate = (section.predicate or "").strip() or None
    return DeclaredTube(name, section.partitions, key_type, predicate, tuple(tables), _digest_of(section))


def _digest_of(section: TubeConfig) -> str:
    """Changes whenever the file declares something else; omitted keys count as written."""
    said = [section.partitions, section.key_type, (section.predicate or "").strip()]
    tables = [
        [*one.table, one.key, one.shard, one.shards, sorted(one.columns), one.replica, one.shard_by]
        for one in attachments(section.tables)
    ]
    return hashlib.sha256(json.dumps([said, tables]).encode()).hexdigest()


def _key_of(table: KnownTable, where: str, connection: psycopg.Connection, schema: str) -> str:
    """The column that names the rows of a table."""
    row = connection.execute(
        queries.within(queries.ID_COLUMN, schema), {"table": table.oid, "id_col": None}
    ).fetchone()
    if 2 <= len(table.key) <= MOST_COLUMNS and (row is None or not row[1]):
        raise ConfigError(
            f"{where}: the primary key of {table.name} has several columns; name them all, in a tube with "
            f'key_type = "text", as key = {json.dumps(table.key, ensure_ascii=False)}, or a unique column'
        )
    if row is None:
        raise ConfigError(
            f"{where}: {table.name} has no column id, and no primary key of one column; name by key the "
            "column of its ids"
        )
    found, is_key, reason = row
    if not is_key:
        raise ConfigError(
            f"{where}: nothing proves which column names the rows of {table.name} ({found}: {reason}); name "
            f'it by key, as key = "{found}" if no two rows can have one {found}'
        )
    return str(found)


def _check_columns(where: str, table: KnownTable, one: Attached) -> None:
    """Refuse columns that are not there, or that no trigger sees."""
    named = [(name, "key") for name in one.key] + [(name, "columns") for name in sorted(one.columns)]
    for name, key in named:
        if name not in table.columns:
            there = ", ".join(table.columns)
            raise ConfigError(f"{where}.{key}: {table.name} has no column {name}; it has {there}")
        if table.columns[name].computed_of:
            raise ConfigError(
                f"{where}.{key}: {name} of {table.name} is a virtual generated column, which has no value "
                "when a row is written; name the columns it is computed from "
                f"({', '.join(table.columns[name].computed_of)}), or make it STORED"
            )


def _check_types(tube: str, where: str, key: Sequence[Column], table: KnownTable, key_type: KeyType) -> None:
    """Refuse a key that is none of the tube."""
    if len(key) > 1:
        _check_parts(tube, where, key, table, key_type)
        return
    (column,) = key
    if column.key_type is not key_type:
        said = _set_type(tube, column.key_type) if column.key_type else ""
        raise ConfigError(
            f"{where}.key: {column.name} of {table.name} is {column.type}, and the keys of the tube are "
            f"{key_type}{said or '; name another column'}"
        )


def _check_parts(tube: str, where: str, key: Sequence[Column], table: KnownTable, key_type: KeyType) -> None:
    if key_type is not KeyType.TEXT:
        raise ConfigError(
            f"{where}.key: a key of several columns is a text, and the keys of the tube are "
            f"{key_type}{_set_type(tube, KeyType.TEXT)}"
        )
    for column in key:
        if column.part is None:
            raise ConfigError(
                f"{where}.key: {column.name} of {table.name} is {column.type}, and a key of several columns "
                "has integers, text, varchar, uuid, boolean, date and enums, but no domains over enums, as "
                "equal values of others may have different texts; name another column"
            )


def _set_type(tube: str, key_type: KeyType) -> str:
    return f'; set key_type = "{key_type}" in [{key_path(("tube", tube))}]'


def _check_related(where: str, one: Attached, root: Attached, catalogue: Catalogue) -> None:
    """Refuse a related table whose columns can't hold the ids of the root table."""
    if len(one.key) != len(root.key):
        raise ConfigError(
            f"{where}.key: ids of {root.table} have {len(root.key)} of its columns in them "
            f"({', '.join(root.key)}), and this key has {len(one.key)}; name the columns with these, in "
            "their order"
        )
    if one.shard_place != root.shard_place:
        same = None if root.shard_place is None else one.key[root.shard_place]
        raise ConfigError(
            f"{where}.shard_by: the shards of {root.table} are decided by "
            f"{root.shard_by or 'its whole key'}, not {one.shard_by or 'the whole key'}; "
            + ("take it out" if same is None else f'say shard_by = "{same}"')
        )
    here, there = (catalogue.table(each.table, where).columns for each in (one, root))
    for name, of in zip(one.key, root.key, strict=True):
        if _kind(here[name]) != _kind(there[of]):
            raise ConfigError(
                f"{where}.key: {name} is {here[name].type}, and can't hold {of} of {root.table}, which is "
                f"{there[of].type}; name another column"
            )


def _kind(column: Column) -> PartType:
    """As what JSON has a value in the text of a key."""
    return column.part if column.part in (PartType.BIGINT, PartType.BOOLEAN) else PartType.TEXT


# --- steps ------------------------------------------------------------------------------------------


def manner(one: Attached) -> Manner:
    """As `pytube tube attach` has it."""
    key_cols = one.key if len(one.key) > 1 else ()
    return Manner(one.shard, one.shards, one.key[0], one.columns, one.replica, key_cols, one.shard_by)


def plan(tube: DeclaredTube, there: There) -> Plan:
    """All that has to be done about a tube to make it as it is declared.

    Raises:
        UsageError: the present state can't become it; the message says what to do.
    """
    _refuse(tube, there)
    now = there.tubes.get(tube.name)
    details = {
        "partitions": tube.partitions or (1 if now is None else now.partitions),
        "key_type": tube.key_type.value,
        "predicate": tube.predicate,
        "tables": [
            {
                "table": str(one.table),
                "column": one.key[0],
                "key": list(one.key),
                "shard_by": one.shard_by,
                "shard": one.shard,
                "shards": one.shards,
                "columns": sorted(one.columns),
                "replica": one.replica,
                "root": one.root,
            }
            for one in tube.tables
        ],
    }
    by_hand = [] if now is None else [one.table for one in now.tables if not one.made]
    others = ", ".join(str(table) for table in by_hand if not tube.table(table))
    notes = [f"attached manually, so left alone: {others}"] if others and tube.tables else []
    return planned(Kind.TUBE, tube, there, _steps(tube, there), details, notes)


def _steps(tube: DeclaredTube, there: There) -> list[Step]:
    """All steps that are left: additions come first, removals last."""
    now = there.tubes.get(tube.name)
    found = list(_made(tube, now))
    if now is None or now.applied != tube.digest:
        found.append(Step(Kind.TUBE, Action.DECLARE, tube.name, "note that the file declares it so"))
    if now is not None:
        # Related tables before their root.
        for one in reversed(now.tables):
            if one.made and tube.table(one.table) is None:
                text = f"detach {one.table} from {tube.name}"
                found.append(Step(Kind.TUBE, Action.DETACH, tube.name, text, one.table))
    return found


def _made(tube: DeclaredTube, now: Tube | None) -> Iterator[Step]:
    name = tube.name
    if now is None:
        text = f"make tube {name}: {tube.key_type} keys, partitions {tube.partitions or 1}"
        text += f", predicate {tube.predicate}" if tube.predicate else ""
        yield Step(Kind.TUBE, Action.MAKE, name, text)
    else:
        if tube.partitions not in (None, now.partitions):
            text = f"give tube {name} partitions {tube.partitions}, not {now.partitions}"
            yield Step(Kind.TUBE, Action.PARTITIONS, name, text)
        if tube.predicate != now.predicate:
            text = f"give tube {name} the predicate {tube.predicate or 'none'}, not {now.predicate or 'none'}"
            roots = tuple(one.table for one in now.tables if one.root)
            yield Step(Kind.TUBE, Action.PREDICATE, name, text, roots=roots)
    there = {} if now is None else {one.table: one for one in now.tables}
    for one in tube.tables:
        was = there.get(one.table)
        if was is None:
            text = f"attach {one.table} to {name} by {', '.join(one.key)}{_how(one)}"
            yield Step(Kind.TUBE, Action.ATTACH, name, text, one.table, (tube.root_of(one),), one)
        elif changed := changes(manner(was), manner(one)):
            text = f"change {one.table} in {name}: {', '.join(changed)}"
            roots = (tube.root_of(one),) if widens(was, one) else ()
            yield Step(Kind.TUBE, Action.CHANGE, name, text, one.table, roots, one)


def _how(one: Attached) -> str:
    counting = (
        f"columns that count: {', '.join(sorted(one.columns))}" if one.columns else "each UPDATE counts"
    )
    shards = "" if (one.shard, one.shards, one.shard_by) == (0, 1, None) else f"; {shards_of(one)}"
    return f"; {counting}{shards}{'; what replication writes, too' if one.replica else ''}"


def shards_of(one: Attached) -> str:
    """For people."""
    return one.range if one.shard_by is None else f"{one.range} by {one.shard_by}"


# --- refusals ---------------------------------------------------------------------------------------


def _refuse(tube: DeclaredTube, there: There) -> None:
    """Refuse a present tube that can't become the declared one.

    Raises:
        KeysWouldChange: its documents would get other keys.
        UsageError: any other reason.
    """
    if tube.name in there.outboxes:
        raise UsageError(f"tube.{tube.name}: {tube.name} is an outbox; give the tube another name")
    now = there.tubes.get(tube.name)
    if now is None:
        return
    _refuse_another_kind(tube, now)
    if now.key_type is not tube.key_type:
        raise KeysWouldChange(
            f"tube.{tube.name}.key_type: the keys of tube {tube.name} are {now.key_type}, for good; declare "
            f"a tube of another name, or drop it with its queue (`pytube tube drop {shlex.quote(tube.name)} "
            "--force`), empty its sink, and apply with --backfill"
        )
    if now.applied is None and tube.predicate != now.predicate:
        said = (
            f'set predicate = "{now.predicate}" in the file' if now.predicate else "remove it from the file"
        )
        raise UsageError(
            f"tube.{tube.name}: tube {tube.name} was created manually, with the predicate "
            f"{now.predicate or 'none'}; {said}, or run `pytube tube create {shlex.quote(tube.name)} "
            f"--predicate {shlex.quote(tube.predicate or '')}`"
        )
    for one in tube.tables:
        was = now.table(one.table)
        if was is not None:
            _refuse_change(tube, one, was, by_hand=now.applied is None or not was.made)
        _refuse_shards(tube, one, now)
    _refuse_heirs(tube, now)


def _refuse_another_kind(tube: DeclaredTube, now: Tube) -> None:
    if now.companion_of is not None:
        raise UsageError(
            f"tube.{tube.name}: {tube.name} is a tube that belongs to the document {now.companion_of}; give "
            "the new tube another name"
        )
    if now.document is not None:
        raise UsageError(
            f"tube.{tube.name}: tube {tube.name} is that of a document which the file does not declare any "
            "more; leave out for now what the section declares of the database, run `pytube apply --prune`, "
            "and put it back"
        )


def _refuse_shards(tube: DeclaredTube, one: Attached, now: Tube) -> None:
    """Shards that are another table's by now."""
    where = f'tube.{tube.name}.tables."{one.table}"'
    for other in now.tables:
        if other.table != one.table and one.overlaps(other) and not one.same_shards(other):
            raise InvalidShard(
                f"{where}: its {shards_of(one)} would overlap {shards_of(other)} of {other.table} in tube "
                f"{tube.name}; give it the same shards if it holds ids of {other.table}, or else separate "
                "shards"
            )
    root = next((each for each in now.tables if each.root and each.same_shards(one)), None)
    if root is not None and root.table != tube.root_of(one):
        raise KeysWouldChange(
            f"{where}: {root.table} has {shards_of(one)} of tube {tube.name}, and its ids name the "
            f'documents; put [tube.{tube.name}.tables."{root.table}"] before it, and name the column that '
            f"holds ids of {root.table} in key; or give it a separate shard"
        )


def _refuse_change(tube: DeclaredTube, one: Attached, was: Attached, *, by_hand: bool) -> None:
    changed = changes(manner(was), manner(one))
    if not changed:
        return
    where = f'tube.{tube.name}.tables."{one.table}"'
    words = f"pytube tube attach {shlex.quote(tube.name)} {shlex.quote(str(one.table))}"
    moves = not was.same_shards(one) or was.shard_place != one.shard_place
    if moves or (was.root and was.key != one.key):
        raise KeysWouldChange(
            f"{where}: each row of {one.table} would have a document under another key "
            f"({', '.join(changed)}); put it back in the file; or run `{words}{_options(one, was)} --force`, "
            f"and then `pytube backfill start {shlex.quote(tube.name)} --table "
            f"{shlex.quote(str(one.table))}`"
        )
    if by_hand:
        raise UsageError(
            f"{where}: {one.table} was attached to tube {tube.name} manually, with other options "
            f"({', '.join(changed)}); change the file to match, or run `{words}{_options(one, was)}`"
        )


def _options(one: Attached, was: Attached) -> str:
    """Of `pytube tube attach`, that make of an attachment what the file declares."""
    words = ""
    if one.shard != was.shard:
        words += f" --shard {one.shard}"
    if one.shards != was.shards:
        words += f" --shards {one.shards}"
    if one.key != was.key:
        words += f" {manner(one).option}"
    if one.shard_by != (was.shard_by if len(one.key) > 1 and was.shard_by in one.key else None):
        words += f" --shard-by {shlex.quote(one.shard_by or '')}"
    if one.columns != was.columns:
        words += f" --columns {shlex.quote(','.join(sorted(one.columns)))}"
    if one.replica != was.replica:
        words += " --replica" if one.replica else " --no-replica"
    return words


def _refuse_heirs(tube: DeclaredTube, now: Tube) -> None:
    """A root table that goes while tables that are related to it stay."""
    for root in now.tables:
        if not (root.root and root.made and tube.table(root.table) is None):
            continue
        stay = [
            str(one.table)
            for one in now.tables
            if one is not root and one.same_shards(root) and (not one.made or tube.table(one.table))
        ]
        if stay:
            commands = ", ".join(
                f"`pytube tube detach {shlex.quote(tube.name)} {shlex.quote(one)}`" for one in stay
            )
            raise RelatedTables(
                f"tube.{tube.name}: the file no longer names {root.table}, so the related table {stay[0]} "
                f"would become the root table, whose rows are the documents; put {root.table} back, or "
                f"remove {', '.join(stay)} from the file, too (if attached manually: {commands})"
            )


# --- outboxes ---------------------------------------------------------------------------------------


def declared_outbox(name: str, section: OutboxConfig) -> DeclaredOutbox:
    """An outbox of the file."""
    table = None if section.adopt is None else table_name(section.adopt)
    said = [section.partitions, section.value_type, str(table), section.wake]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    return DeclaredOutbox(name, section.partitions, section.value_type, table, section.wake, digest)


def plan_outbox(outbox: DeclaredOutbox, there: There) -> Plan:
    """All that has to be done about an outbox to make it as it is declared.

    Raises:
        UsageError: the present state can't become it; the message says what to do.
    """
    _refuse_outbox(outbox, there)
    now = there.outboxes.get(outbox.name)
    details = {
        "partitions": outbox.partitions or (1 if now is None else now.partitions),
        "value_type": outbox.value_type if now is None else now.value_type,
        "table": None if outbox.table is None else str(outbox.table),
        "wakes": outbox.wakes if outbox.table is not None else True,
    }
    return planned(Kind.OUTBOX, outbox, there, list(_outbox_steps(outbox, now)), details)


def _outbox_steps(outbox: DeclaredOutbox, now: Outbox | None) -> Iterator[Step]:
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


def _refuse_outbox(outbox: DeclaredOutbox, there: There) -> None:
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
