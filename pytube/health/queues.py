"""The doctor's look at tubes and outboxes: are they there, and delivered; documents, ids, rights, indexes."""

from __future__ import annotations

import asyncio
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, LiteralString

import psycopg
from psycopg import errors, sql

from pytube.clock import for_people
from pytube.config import Config, SinkConfig
from pytube.counts import name_partitions, say_count
from pytube.db.connect import connect_sync
from pytube.db.errors import describe, is_connection_lost
from pytube.db.session import Session
from pytube.enrich.check import SETTINGS, Report, check_enriching
from pytube.enrich.statements import WhyNoName
from pytube.errors import ConfigError, PytubeError
from pytube.health.findings import Check, Look, fail, is_expected, judged, ok, refused, warn
from pytube.health.fleet import HostSample, LastSample, Partition
from pytube.health.troubles import oldest, pace, troubles
from pytube.health.watcher import PACE_LOOK, Reader, queues_of
from pytube.sinks import build_sink
from pytube.sinks.registry import naming_of
from pytube.sources.terms import Shards, shards_of, shared_shards
from pytube.tubes.queries import within

_PARTITIONS: Final[dict[str, LiteralString]] = {
    "tube": "SELECT DISTINCT tube, partitions FROM {s}.tube_list() ORDER BY tube",
    "outbox": "SELECT outbox, partitions FROM {s}.outbox_list()",
}

_SHARDS = """
    SELECT DISTINCT tube, shard, shards FROM {s}.tube_list() WHERE tbl IS NOT NULL AND companion_of IS NULL
"""

_SPREAD = "SELECT tube, partitions, shard, shards FROM {s}.tube_list() WHERE tbl IS NOT NULL ORDER BY tube"


def read_partitions(connection: psycopg.Connection, schema: str, kind: str) -> dict[str, int] | None:
    """The tubes, or outboxes, that are there, with their numbers of partitions; None when we may not look."""
    try:
        return dict(connection.execute(within(_PARTITIONS[kind], schema)).fetchall())
    except psycopg.errors.InsufficientPrivilege:
        return None


def check_shards(config: Config) -> Iterator[Check]:
    """Whether hosts have shards of one tube in common."""
    shards: dict[str | None, Shards] = {}
    for host in config.hosts:
        with suppress(PytubeError, psycopg.Error):  # reported by the check of the host
            shards[host] = _read_shards(config.of_host(host))
    shared = list(shared_shards(shards))
    for one in shared:
        yield refused(f"shards of {one.tube}", one.finding)
    unknown = ", ".join(str(host) for host in config.hosts if host not in shards)
    if unknown:
        yield warn("shards", f"not checked on {unknown}", "see above, and run doctor again")
    elif not shared:
        yield ok("shards", "no tube has one on two hosts")


def _read_shards(config: Config) -> Shards:
    schema = config.postgres.schema_name
    with connect_sync(config.postgres.only_dsn, schema, application_name="pytube doctor") as connection:
        return shards_of(connection.execute(within(_SHARDS, schema)).fetchall())


def check_tubes(config: Config, partitions: Mapping[str, int]) -> Iterator[Check]:
    """Whether the tubes of the configuration are there, and which others."""
    for name in config.tubes:
        if name in partitions:
            yield ok(f"tube {name}", say_count(partitions[name], "partition"))
        elif name not in config.documents and not config.tubes[name].declared:  # else declarations report it
            yield fail(f"tube {name}", "is not in the database", f"pytube tube create {name}")
    for name, number in partitions.items():
        if not is_expected(config, name):
            yield judged(ok(f"tube {name}", say_count(number, "partition")), config, name)


def check_reach(look: Look) -> Iterator[Check]:
    """Whether each partition of a tube has a shard of an attached table: shard modulo partitions."""
    rows = look.connection.execute(within(_SPREAD, look.schema)).fetchall()
    reached: dict[tuple[str, int], set[int]] = {}
    for tube, partitions, first, shards in rows:
        ours = range(first, first + min(shards, partitions))
        reached.setdefault((tube, partitions), set()).update(shard % partitions for shard in ours)
    idle = {
        key: sorted({*range(key[1])} - numbers) for key, numbers in reached.items() if len(numbers) < key[1]
    }
    for (tube, partitions), missing in idle.items():
        fit = partitions - len(missing)
        check = warn(
            f"partitions of {tube}",
            f"no shard of its tables maps to {name_partitions(missing)} of {partitions}, so no pods "
            "arrive there, and the leader is idle",
            f"have fewer partitions: pytube tube create {tube} --partitions {fit}; or spread a table over "
            f"more shards: pytube tube attach {tube} TABLE --shards {partitions} --force, then backfill it",
        )
        yield judged(check, look.config, tube)
    if not idle:
        yield ok("partitions", "each has a shard of an attached table, where there are tables")


# --- what documents are made of ---------------------------------------------------------


def check_sources(config: Config, tubes: Sequence[str]) -> Iterator[Check]:
    """Prepare what reads the documents of these tubes, with the worker's role and kind of session."""
    try:
        reports = asyncio.run(_read_reports(config, tubes))
    except psycopg.errors.InsufficientPrivilege:
        yield warn("enriching", "not checked: the registry can't be read", "see above: rights")
        return
    except (PytubeError, psycopg.Error) as error:
        text = describe(error) if isinstance(error, psycopg.Error) else str(error)
        yield fail("enriching", f"not checked: {text}", "fix this, and run doctor again")
        return
    for tube, report in reports.items():
        subject = f"enriching of {tube}"
        for fault in report.faults:
            yield (fail if fault.is_certain else warn)(subject, fault.finding, fault.remedy)
        if not report.faults:
            names = ", ".join(report.tables) or "no table, as none is attached"
            yield ok(subject, f"prepared as {report.role} for {names}; no row was read")


async def _read_reports(config: Config, tubes: Sequence[str]) -> dict[str, Report]:
    dsn, schema = config.postgres.only_dsn.get_secret_value(), config.postgres.schema_name
    session = await Session.open(dsn, schema, "pytube doctor", settings=SETTINGS)
    try:
        return {
            name: await check_enriching(session.connection, name, tube.enrich, _why_no_name(tube.sink))
            for name in tubes
            for tube in [config.tubes[name]]
        }
    finally:
        await session.close()


def _why_no_name(config: SinkConfig) -> WhyNoName | None:
    """As for `check_enriching`; None also where the sink can't be built, which another check reports."""
    try:
        naming = naming_of(build_sink(config.type, config.options))
    except ConfigError:
        return None
    return None if naming is None else naming.why_no_name


# --- ids --------------------------------------------------------------------------------------

PAGES = 2000
"""Pages of a table that are read, about; 16 MB."""
LIMIT = 5.0
"""Seconds that the sample of one table may take."""
_TOTAL = 30.0
"""Seconds that all of them may take."""

# Rows that do not belong to the tube may have the same ids: no document is made of them. Nor is one made of
# the links in a companion.
_UNPROVEN = """
    SELECT DISTINCT n.nspname, c.relname,
        pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) AS shown,
        coalesce(l.key_cols, ARRAY[k.name])::text[], k.is_key AND l.key_cols IS NULL, l.predicate
    FROM {s}.tube_list() AS l CROSS JOIN LATERAL {s}.tube_id_column(l.tbl, l.id_col) AS k
    JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.root AND CASE WHEN l.key_cols IS NULL THEN NOT k.is_unique ELSE NOT EXISTS (
            SELECT FROM pg_catalog.pg_index AS i
            WHERE i.indrelid = l.tbl AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
                AND i.indexprs IS NULL AND NOT EXISTS (
                    SELECT FROM pg_catalog.pg_attribute AS a
                    WHERE a.attrelid = l.tbl AND a.attnum = ANY (i.indkey[:i.indnkeyatts - 1])
                        AND a.attname <> ALL (l.key_cols))) END
        AND l.tube NOT IN (SELECT d.tube FROM {s}.tube_documents() AS d WHERE d.companion_of IS NOT NULL)
    ORDER BY 1, 2, 4
"""

# A size waits for who has locked the table.
_SIZE = """
    SELECT (pg_catalog.pg_relation_size(t.oid)
            + (SELECT coalesce(sum(pg_catalog.pg_relation_size(p.relid)), 0)
                FROM pg_catalog.pg_partition_tree(t.oid) AS p WHERE p.relid <> t.oid)
        ) / current_setting('block_size')::integer
    FROM (SELECT {name}::regclass) AS t (oid)
"""

_SAMPLE = """
    WITH looked_at AS MATERIALIZED (
        SELECT {id} AS id FROM {table} AS r TABLESAMPLE SYSTEM ({percent})
        WHERE num_nulls({columns}) = 0{condition}
    ), repeated AS MATERIALIZED (
        SELECT id FROM looked_at GROUP BY id HAVING count(*) > 1
    )
    SELECT (SELECT count(*) FROM looked_at), (SELECT count(*) FROM repeated),
        ARRAY(SELECT left(id::text, 40) FROM repeated ORDER BY id LIMIT 3)
"""


def check_ids(look: Look) -> Iterator[Check]:
    """Whether one id is one row in attached tables, where no index proves it: in a sample, in bounded time.

    With the rights of this session. Only root tables are looked at.
    """
    try:
        checks = list(_check_tables(look.connection, look.schema))
    except psycopg.errors.QueryCanceled as error:
        yield warn("ids", f"not looked at: {describe(error)}", "run the doctor again")
        return
    yield from checks
    if not checks:
        yield ok("ids", "an index proves them unique in each attached table")


def _check_tables(connection: psycopg.Connection, schema: str) -> Iterator[Check]:
    ends = time.monotonic() + _TOTAL
    for folder, name, table, names, is_key, predicate in _fetch(connection, within(_UNPROVEN, schema), LIMIT):
        # The predicate comes from the registry, where it was checked.
        condition = "" if predicate is None else f" AND ({predicate}\n)"
        column = ", ".join(names)
        columns = sql.SQL(", ").join(sql.Identifier("r", name) for name in names)
        until = min(time.monotonic() + LIMIT, ends)
        try:
            ((pages,),) = _fetch(connection, sql.SQL(_SIZE).format(name=table), until - time.monotonic())
            percent = min(100.0, 100.0 * PAGES / max(int(pages), 1))
            query = sql.SQL(_SAMPLE).format(
                id=columns if len(names) == 1 else sql.SQL("ROW({})").format(columns),
                columns=columns,
                table=sql.Identifier(folder, name),
                percent=percent,
                condition=sql.SQL(condition),
            )
            ((rows, repeated, examples),) = _fetch(connection, query, until - time.monotonic())
        except psycopg.Error as error:
            if is_connection_lost(error):
                raise
            finding = f"no index proves {column} unique, and its rows were not looked at: {_trouble(error)}"
            yield warn(f"ids of {table}", finding, f"run the doctor as a role that may read {table}")
        else:
            looked = f"the {rows} rows of the tube that were looked at, which are "
            looked += "all" if percent == 100.0 else "not all"
            yield _check_sample(table, column, looked, repeated, examples, is_key=is_key)


def _check_sample(
    table: str, column: str, looked: str, repeated: int, examples: Sequence[str], *, is_key: bool
) -> Check:
    if repeated:
        some = ", ".join(key if key.isprintable() else repr(key) for key in examples)
        return fail(
            f"ids of {table}",
            f"values of {column} that stand more than once: {repeated} ({some}), in {looked}; "
            "of rows with one id, any one becomes the document",
            "attach it by a column that is unique: pytube tube attach … --id-col COLUMN",
        )
    finding = f"no index proves {column} unique; no value stands twice in {looked}"
    if is_key:
        return ok(f"ids of {table}", finding)
    remedy = f"make a unique index on {column}, or attach it by a column that has one"
    return warn(f"ids of {table}", finding, remedy)


def _fetch(connection: psycopg.Connection, query: sql.Composed, seconds: float) -> list[tuple[Any, ...]]:
    """The rows of a query, which may take so many seconds; a policy that hides rows makes it fail."""
    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        connection.execute("SET LOCAL row_security = off")
        milliseconds = max(1, int(seconds * 1000))
        connection.execute("SELECT set_config('statement_timeout', %s, true)", [f"{milliseconds}ms"])
        return connection.execute(query).fetchall()


def _trouble(error: psycopg.Error) -> str:
    if isinstance(error, errors.QueryCanceled):
        return f"that took longer than {LIMIT:g} s, or than {_TOTAL:g} s for all tables"
    return describe(error)


# --- outboxes ---------------------------------------------------------------------------------------

# A worker marks and deletes records with its own rights.
_OUTBOXES: Final = """
    SELECT l.outbox, l.partitions, l.adopted, l.wakes,
        coalesce(quote_ident(n.nspname) || '.' || quote_ident(c.relname), ''),
        array_remove(ARRAY[
            CASE WHEN NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
                THEN format('USAGE ON SCHEMA %%I', n.nspname) END,
            CASE WHEN NOT pg_catalog.has_table_privilege(c.oid, 'SELECT')
                THEN format('SELECT ON %%I.%%I', n.nspname, c.relname) END,
            CASE WHEN NOT pg_catalog.has_column_privilege(c.oid, 'leader_id', 'UPDATE')
                THEN format('UPDATE (leader_id) ON %%I.%%I', n.nspname, c.relname) END,
            CASE WHEN NOT pg_catalog.has_table_privilege(c.oid, 'DELETE')
                THEN format('DELETE ON %%I.%%I', n.nspname, c.relname) END], NULL),
        c.relrowsecurity,
        l.partitions = 1 OR EXISTS (
            SELECT FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
            WHERE i.indrelid = l.tbl AND i.indisvalid
                AND x.relname ~ format('_%%s_p%%s_idx$', left(md5('outbox ' || l.outbox), 8), l.partitions))
    FROM {s}.outbox_list() AS l
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    ORDER BY l.outbox
"""


def check_outboxes(look: Look) -> Iterator[Check]:
    """A finding for each outbox that is there, or should be, and more where something is wrong."""
    rows = look.connection.execute(within(_OUTBOXES, look.schema), {}).fetchall()
    for row in rows:
        for check in _check(*row):
            yield judged(check, look.config, row[0])
    there = {row[0] for row in rows}
    for name, outbox in look.config.outboxes.items():
        if name not in there and not outbox.declared:  # else declarations report it
            yield fail(f"outbox {name}", "is not in the database", f"pytube outbox create {name}")


def _check(
    outbox: str,
    partitions: int,
    adopted: bool,
    wakes: bool,
    table: str,
    lacking: list[str],
    row_security: bool | None,
    indexed: bool,
) -> Iterator[Check]:
    subject = f"outbox {outbox}"
    if not table:
        yield fail(subject, "its table was dropped", shlex.join(["pytube", "outbox", "drop", outbox]))
        return
    whose = "adopted" if adopted else "its own"
    yield ok(subject, f"{say_count(partitions, 'partition')}, table {table} ({whose})")
    if lacking:
        yield fail(
            subject,
            f"this role does not have a worker's rights on {table}",
            f"as its owner, grant the worker's role: {', '.join(lacking)}"
            if adopted
            else "grant this role tube_worker, or this installation's role in place of it",
        )
    if row_security:
        yield fail(
            subject,
            f"row-level security of {table} could hide records",
            f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
        )
    if not indexed:
        yield warn(
            subject,
            f"it has no index for its {partitions} partitions, so each mark reads the records of all",
            shlex.join(["pytube", "outbox", *(("adopt", outbox, table) if adopted else ("create", outbox))]),
        )
    if not wakes:
        yield warn(
            subject,
            f"writers of {table} do not wake workers, which poll",
            shlex.join(["pytube", "outbox", "adopt", outbox, table, "--wake"]),
        )


# --- delivery: leaders, pauses, outages, parked and slow ones, and copies to be verified ------------------

_LATE = 3
"""A sample is late when so many times the interval has passed, and `_PATIENCE`, since the last one."""
_PATIENCE = 60.0

# When the last term of each partition ended.
_ENDED: Final = """
    SELECT t.tube, t.partition, extract(epoch FROM clock_timestamp() - max(t.ended_at))::float8
    FROM unnest(%(tubes)s::text[]) AS f (tube) CROSS JOIN LATERAL {s}.tube_terms(f.tube) AS t
    GROUP BY t.tube, t.partition
"""


def check_delivery(look: Look) -> Iterator[Check]:
    """Reasons why documents and records are not delivered, and copies that are wrong.

    Workers with another configuration may serve tubes that this one does not name: they get warnings only.
    """
    connection, schema, config = look
    found = Reader(schema).read(connection)
    waited = _waited(connection, schema, found.partitions)
    needed = [one for one in found.complaints if one not in found.kafka or is_expected(config, one.tube)]
    wrong = troubles([replace(found, complaints=needed)], waited)
    for one in wrong:
        check = Check(one.subject, one.level, one.finding, one.remedy, one.kind)
        yield check if one.name is None else judged(check, config, one.name)
    if not wrong:
        yield ok("leaders", _well(found.partitions))
    yield from _check_pace(look, found)
    if any(row.parked is None for row in found.partitions if row.kind == "tube"):
        yield warn("parked", "documents were not looked at", "see above: rights")
    if "copies to verify" in found.unseen:
        yield warn("copies", "unverified ones were not looked for", "see above: rights")
    else:
        yield from _check_copies(found, config)


def _check_pace(look: Look, found: HostSample) -> Iterator[Check]:
    late = {queue.name: queue for queue in queues_of(found) if queue.is_behind}
    if not late:
        return
    time.sleep(max(0.0, found.counted_at + PACE_LOOK - time.monotonic()))
    after = Reader(look.schema).read(look.connection)
    for queue in queues_of(after):
        if queue.name in late:
            falls_by = queue.falls_since(late[queue.name], after.counted_at - found.counted_at)
            said = pace(replace(queue, falls_by=falls_by), after.hindered)
            if said is not None and (falls_by or 0.0) > 0:
                yield ok(f"lag of {queue.name}", said)
            elif said is not None:
                remedy = "see what takes the time, or start more processes: PytubeLag in docs/runbook.md"
                yield judged(warn(f"lag of {queue.name}", said, remedy), look.config, queue.name)


def _waited(
    connection: psycopg.Connection, schema: str, rows: Sequence[Partition]
) -> dict[tuple[str, int], float]:
    """For how many seconds something has waited in partitions without a leader."""
    free = [row for row in rows if row.leader is None and oldest(row) is not None]
    tubes = sorted({row.name for row in free})
    ended = connection.execute(within(_ENDED, schema), {"tubes": tubes}).fetchall() if tubes else ()
    since = {(tube, partition): seconds for tube, partition, seconds in ended if seconds is not None}
    return {
        (row.name, row.partition): min(oldest(row) or 0.0, since.get((row.name, row.partition), math.inf))
        for row in free
    }


def _well(rows: Sequence[Partition]) -> str:
    if not rows:
        return "there is no tube and no outbox yet"
    return (
        f"{say_count(len(rows), 'partition')} looked at: led, not paused or stopped, and no sink or source "
        "is reported down; `pytube status` shows how far behind they are"
    )


def _check_copies(found: HostSample, config: Config) -> Iterator[Check]:
    if not found.unverified:
        yield ok("copies", "no copy has to be verified")
    samples = {one.tube: one for one in found.samples}
    for name, tube in config.tubes.items():
        if tube.verify is not None:
            yield _check_last_sample(name, tube.verify.every, samples.get(name))


def _check_last_sample(tube: str, every: float, sample: LastSample | None) -> Check:
    subject = f"sample of {tube}"
    remedy = "samples wait while the tube is behind; else see sample_not_compared in the workers' logs"
    if sample is None:
        return warn(subject, "none was compared yet", remedy)
    if sample.ago > _LATE * every + _PATIENCE:
        return warn(subject, f"{sample}; one is due every {for_people(every)}", remedy)
    return ok(subject, str(sample))
