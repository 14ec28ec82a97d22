"""The source: two tables, two tubes, and triggers of the test's own that write down what happens.

`live` follows every row; `slim` has a predicate. Each table is in both. The numbers `n` of a row
only grow, even over a delete, so that the sink's state can be placed among the source's.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

ITEMS, EXTRAS = 3000, 600
"""Rows that writers change."""

FAR = 1_000_000
"""Ids from here on are those of long transactions, so that they lock no row that others change."""

PARTITIONS = 4
PREDICATE = "NOT hidden"


@dataclass(frozen=True, slots=True)
class Tube:
    """One tube: how its partitions are led, and which shards its tables have."""

    name: str
    election: str
    predicate: str | None
    items: tuple[int, int]
    """The first shard of `items`, and over how many it is spread."""
    extras: int
    """The shard of `extras`, which is spread over one: its pods have up to 200 ids."""


TUBES = (
    Tube("live", "neli", None, items=(0, 16), extras=16),
    Tube("slim", "lease", PREDICATE, items=(3, 2), extras=8),
)
BY_ELECTION = {tube.election: tube for tube in TUBES}

JOURNAL = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.change (
    xid bigint, tbl text, id bigint, n bigint, hidden boolean,
    -- Drawn while the row is locked: the changes of one row have it in the order of their commits.
    place bigint GENERATED ALWAYS AS IDENTITY
);
CREATE TABLE chaos.pod (tube text, seq bigint, xid bigint, shard integer, ids bigint[], ts float8);
CREATE TABLE chaos.purge (tube text, seq bigint, leader_id text, at float8);
CREATE TABLE chaos.renewal (leader_id text, at float8);

CREATE FUNCTION chaos.changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO chaos.change
    SELECT pg_current_xact_id()::text::bigint, TG_TABLE_NAME, id,
        CASE TG_OP WHEN 'DELETE' THEN NULL ELSE n END, hidden
    FROM rows;
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.touched() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO chaos.pod
    SELECT TG_TABLE_NAME, seq, pg_current_xact_id()::text::bigint, shard, ids, extract(epoch FROM ts)
    FROM rows;
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.purged() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO chaos.purge
    SELECT TG_TABLE_NAME, seq, leader_id::text, extract(epoch FROM clock_timestamp()) FROM rows;
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.renewed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO chaos.renewal VALUES (NEW.leader_id, extract(epoch FROM NEW.renewed_at));
    RETURN NULL;
END $$;
CREATE TRIGGER zz_chaos_renewed AFTER UPDATE ON tube.tube_leader
FOR EACH ROW WHEN (NEW.renewed_at IS DISTINCT FROM OLD.renewed_at AND NEW.leader_id IS NOT NULL)
EXECUTE FUNCTION chaos.renewed();
"""
_TRIGGER = """
CREATE TRIGGER zz_chaos_{event} AFTER {event} ON {table} REFERENCING {age} TABLE AS rows
FOR EACH STATEMENT EXECUTE FUNCTION chaos.{function}()
"""


def make(dsn: str) -> None:
    """Make all of it, with the first rows."""
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as connection:
        connection.execute(JOURNAL)
        for table in ("items", "extras"):
            connection.execute(
                f"CREATE TABLE public.{table} (id bigint PRIMARY KEY, n bigint NOT NULL, note text,"
                " hidden boolean NOT NULL DEFAULT false)"
            )
            for event, age in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                _watch(connection, f"public.{table}", event, age, "changed")
        for tube in TUBES:
            connection.execute(
                "SELECT tube_ensure_exists(%s, %s, %s)", (tube.name, PARTITIONS, tube.predicate)
            )
            _attach(connection, tube.name, "public.items", *tube.items)
            _attach(connection, tube.name, "public.extras", tube.extras, 1)
            _watch(connection, f"tube.{tube.name}", "INSERT", "NEW", "touched")
            _watch(connection, f"tube.{tube.name}", "DELETE", "OLD", "purged")
        for table, rows in (("items", ITEMS), ("extras", EXTRAS)):
            connection.execute(
                f"INSERT INTO public.{table} SELECT g, 0, 'first', g % 10 = 0"
                f" FROM generate_series(1, {rows}) g"
            )


def _attach(connection: psycopg.Connection, tube: str, table: str, shard: int, shards: int) -> None:
    connection.execute(
        "SELECT tube_table_ensure_attached(%s, %s, shard => %s, shards => %s)", (tube, table, shard, shards)
    )


def _watch(connection: psycopg.Connection, table: str, event: str, age: str, function: str) -> None:
    connection.execute(_TRIGGER.format(table=table, event=event, age=age, function=function))
