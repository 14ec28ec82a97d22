"""Declared documents: what they follow by a companion is touched and backfilled by its link values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from pytube.db.database import Database
from pytube.declarations.apply import Declarations
from pytube.declarations.survey import plan
from pytube.errors import UnknownTable, UsageError
from pytube.spark import backfill, fanout_sql, touch
from tests.helpers import cli, declared

Conn = psycopg.Connection[Any]


@pytest.fixture
def shop(conn: Conn, dsn: str) -> Conn:
    conn.execute(declared.SCHEMA)
    with Database(SecretStr(dsn)).connect() as connection:
        declarations = Declarations(connection, "tube")
        declarations.apply(plan(declared.document(), declarations.there()))
    conn.execute("DELETE FROM orders; DELETE FROM orders_relations")
    return conn


def waiting(conn: Conn, tube: str) -> set[tuple[str, int]]:
    """The op and id of each touch that waits."""
    return set(conn.execute(f"SELECT op, unnest(ids) FROM {tube}").fetchall())


def test_a_backfill_of_a_relation_collects_its_links(spark: SparkSession, shop: Conn, dsn: str) -> None:
    done = backfill(spark, "orders", "shop.products", dsn=dsn, ranges=2)
    assert done.rows == 5
    assert waiting(shop, "orders_relations") == {("B", number) for number in range(1, 6)}
    assert waiting(shop, "orders") == set()
    (row,) = cli.run_json("backfill", "status", "orders", dsn=dsn)
    assert (row["backfill_id"], row["tube"]) == (done.backfill_ids[0], "orders_relations")


def test_a_backfill_of_a_table_with_keys_of_documents(spark: SparkSession, shop: Conn, dsn: str) -> None:
    backfill(spark, "orders", "shop.order_items", dsn=dsn, ranges=2)
    assert waiting(shop, "orders") == {("B", number) for number in range(1, 21)}
    assert waiting(shop, "orders_relations") == set()


def test_a_fan_out_of_a_relation(spark: SparkSession, shop: Conn, dsn: str) -> None:
    query = "SELECT id FROM shop.products WHERE id <= 2"
    fanout_sql(spark, query, tubes="orders", dsn=dsn, relation="shop.products", ranges=2)
    assert waiting(shop, "orders_relations") == {("B", 1), ("B", 2)}
    shards = shop.execute("SELECT DISTINCT shard FROM orders_relations").fetchall()
    assert (
        shards
        == shop.execute(
            "SELECT shard FROM tube_list('shop.products') WHERE tube = 'orders_relations'"
        ).fetchall()
    ), "or the values would be taken for those of another table"


def test_a_dataframe_of_links(spark: SparkSession, shop: Conn, dsn: str) -> None:
    df = spark.createDataFrame([(3,)], "id bigint")
    touch(df, tubes="orders", dsn=dsn, relation="shop.customers.id")
    assert waiting(shop, "orders_relations") == {("B", 3)}
    touch(df, tubes="orders", dsn=dsn, relation="shop.order_items")
    assert waiting(shop, "orders") == {("B", 3)}, "order_items.order_id is the key of an order"


def test_keys_of_documents_need_no_relation(spark: SparkSession, shop: Conn, dsn: str) -> None:
    df = spark.createDataFrame([(3,)], "id bigint")
    touch(df, tubes="orders", dsn=dsn, shard=None)
    assert waiting(shop, "orders") == {("B", 3)}


@pytest.mark.usefixtures("shop")
def test_what_is_not_followed_is_refused(spark: SparkSession, dsn: str) -> None:
    df = spark.createDataFrame([(3,)], "id bigint")
    with pytest.raises(UsageError, match="don't follow shop.notes in exactly one way"):
        touch(df, tubes="orders", dsn=dsn, relation="shop.notes")
    with pytest.raises(UsageError, match="name one of: shop.products.id"):
        touch(df, tubes="orders", dsn=dsn, relation="shop.products.sku")
    with pytest.raises(UnknownTable, match="shop.nope"):
        touch(df, tubes="orders", dsn=dsn, relation="shop.nope")
    with pytest.raises(UsageError, match="give one tube"):
        touch(df, tubes=["orders", "orders_relations"], dsn=dsn, relation="shop.products")
    with pytest.raises(UsageError, match="not attached"):
        backfill(spark, "orders", "shop.notes", dsn=dsn)


def test_files_of_links(shop: Conn, dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "products.csv"
    file.write_text("id\n4\n")
    arguments = ["--tube", "orders", "--input", str(file), "--format", "csv", "--relation", "shop.products"]
    cli.run("spark", "touch", *arguments, "--cores", "1", dsn=dsn)
    assert waiting(shop, "orders_relations") == {("B", 4)}
