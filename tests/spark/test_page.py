"""What docs/spark.md shows works."""

from __future__ import annotations

from typing import Any

import psycopg
from pyspark.sql import SparkSession

from tests.docs.pages import BY_NAME


def test_its_python(spark: SparkSession, dsn: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TABLE public.orders (id bigint PRIMARY KEY, total numeric(10, 2))")
    conn.execute("SELECT tube_ensure_exists('es-live', 2)")
    conn.execute("SELECT tube_table_ensure_attached('es-live', 'public.orders', 0, 16)")
    conn.execute("SELECT outbox_ensure_exists('events')")
    conn.execute("INSERT INTO public.orders SELECT i, i FROM generate_series(1, 20) AS i")
    blocks = BY_NAME["docs/spark.md"].blocks("python")
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block.text, str(block), "exec"), {"spark": spark, "dsn": dsn})  # noqa: S102
    row = conn.execute('SELECT sum(cardinality(ids)) FROM "es-live"').fetchone()
    assert row == (20 + 1000 + 1,)
