"""The doctor's look at tubes: whether they are there, and what their documents are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import psycopg

from pytube.config import Config
from pytube.counts import say_count
from pytube.db.connect import connect_sync
from pytube.db.errors import describe
from pytube.db.session import Session
from pytube.enrich.check import SETTINGS, Report, check_enriching
from pytube.errors import PytubeError
from pytube.health.duplicates import Sample, sample_ids
from pytube.health.findings import Check, fail, is_expected, of_others, ok, warn
from pytube.sources.shards import Shards, shards_of, shared_shards
from pytube.tubes.queries import within

_TUBES = "SELECT DISTINCT tube, partitions FROM {s}.tube_list() ORDER BY tube"

_SHARDS = "SELECT DISTINCT tube, shard, shards FROM {s}.tube_attachment"

_FORMER_OWNERS = """
    SELECT DISTINCT a.tbl::text, c.relowner::regrole::text, p.proowner::regrole::text
    FROM {s}.tube_attachment AS a
    JOIN pg_catalog.pg_class AS c ON c.oid = a.tbl
    JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = a.tbl
    JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid AND p.proname = a.trigger_function
    WHERE p.proowner <> c.relowner
    ORDER BY 1
"""


def read_tubes(connection: psycopg.Connection, schema: str) -> dict[str, int] | None:
    """The tubes that are there, with their numbers of partitions; None when we may not look."""
    try:
        return dict(connection.execute(within(_TUBES, schema)).fetchall())
    except psycopg.errors.InsufficientPrivilege:
        return None


def check_shards(config: Config) -> Iterator[Check]:
    """Whether hosts have shards of one tube in common."""
    shards: dict[str | None, Shards] = {}
    for host in config.hosts:
        with suppress(PytubeError, psycopg.Error):  # told of where the host was looked at
            shards[host] = _read_shards(config.of_host(host))
    shared = list(shared_shards(shards))
    for one in shared:
        finding, _, remedy = one.finding.rpartition("; ")
        yield fail(f"shards of {one.tube}", finding, remedy)
    unknown = ", ".join(str(host) for host in config.hosts if host not in shards)
    if unknown:
        yield warn("shards", f"those of {unknown} were not looked at", "see above, and run doctor again")
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
        else:
            yield fail(f"tube {name}", "is not in the database", f"pytube tube create {name}")
    for name, number in partitions.items():
        if not is_expected(config, name):
            yield of_others(ok(f"tube {name}", say_count(number, "partition")))


def check_ids(connection: psycopg.Connection, schema: str) -> Iterator[Check]:
    """Whether one id is one row in attached tables, where no index proves it: in a sample."""
    try:
        samples = list(sample_ids(connection, schema))
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.QueryCanceled) as error:
        yield warn("ids", f"not looked at: {describe(error)}", "see above: rights, or run the doctor again")
        return
    for sample in samples:
        yield _check_sample(sample)
    if not samples:
        yield ok("ids", "an index proves them unique in each attached table")


def _check_sample(sample: Sample) -> Check:
    subject, column = f"ids of {sample.table}", sample.column
    looked = f"the {sample.rows} rows of the tube that were looked at, which are "
    looked += "all" if sample.is_whole else "not all"
    if sample.trouble is not None:
        finding = f"no index proves {column} unique, and its rows were not looked at: {sample.trouble}"
        return warn(subject, finding, f"run the doctor as a role that may read {sample.table}")
    if sample.repeated:
        some = ", ".join(key if key.isprintable() else repr(key) for key in sample.examples)
        return fail(
            subject,
            f"values of {column} that stand more than once: {sample.repeated} ({some}), in {looked}; "
            "of rows with one id, any one becomes the document",
            "attach it by a column that is unique: pytube tube attach … --id-col COLUMN",
        )
    finding = f"no index proves {column} unique; no value stands twice in {looked}"
    if sample.is_key:
        return ok(subject, finding)
    return warn(subject, finding, f"make a unique index on {column}, or attach it by a column that has one")


def check_owners(connection: psycopg.Connection, schema: str) -> Iterator[Check]:
    """Whether trigger functions have the rights of their tables' owners, and of nobody who was one."""
    try:
        rows = connection.execute(within(_FORMER_OWNERS, schema)).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        yield warn("owners", "of attached tables were not looked at", "see above: rights")
        return
    for table, owner, former in rows:
        yield fail(
            f"owner of {table}",
            f"is {owner}, but its trigger function still belongs to {former}: "
            f"{owner} can run code with the rights of {former}",
            f"run as a role that has the rights of both: SELECT {schema}.tube_sync();",
        )
    if not rows:
        yield ok("owners", "trigger functions belong to the owners of their tables")


# --- what documents are made of ---------------------------------------------------------


def check_sources(config: Config, tubes: Sequence[str]) -> Iterator[Check]:
    """Prepare what reads the documents of these tubes, with the worker's role and kind of session."""
    try:
        reports = asyncio.run(_read_reports(config, tubes))
    except psycopg.errors.InsufficientPrivilege:
        yield warn("enriching", "was not looked at: the registry can't be read", "see above: rights")
        return
    except (PytubeError, psycopg.Error) as error:
        text = describe(error) if isinstance(error, psycopg.Error) else str(error)
        yield fail("enriching", f"was not looked at: {text}", "mend that, and run doctor again")
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
            name: await check_enriching(session.connection, name, config.tubes[name].enrich) for name in tubes
        }
    finally:
        await session.close()
