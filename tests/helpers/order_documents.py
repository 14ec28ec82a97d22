"""A declared document of orders as the compiler would make it, and what `pytube apply` does, by SQL."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg

from pytube.config.names import TableName
from pytube.documents.model import Document, Link, companions_of, read_tubes
from pytube.model import KeyType

Conn = psycopg.Connection[Any]

SCHEMA = """
    CREATE TABLE public.customers (id bigint PRIMARY KEY, name text);
    CREATE TABLE public.couriers (code text PRIMARY KEY, name text);
    CREATE TABLE public.categories (id bigint PRIMARY KEY, name text);
    CREATE TABLE public.products (id bigint PRIMARY KEY, name text);
    CREATE TABLE public.product_categories (
        product_id bigint REFERENCES public.products ON DELETE CASCADE,
        category_id bigint REFERENCES public.categories ON DELETE CASCADE,
        PRIMARY KEY (product_id, category_id));
    CREATE TABLE public.orders (
        id bigint PRIMARY KEY, customer_id bigint, courier_code text, total integer, secret text);
    CREATE TABLE public.order_items (
        id bigint PRIMARY KEY, order_id bigint, product_id bigint, amount integer DEFAULT 1);
    CREATE TABLE public.comments (
        id bigint PRIMARY KEY, order_id bigint, parent_id bigint REFERENCES public.comments ON DELETE CASCADE,
        text text);
    CREATE INDEX ON public.product_categories (category_id);
    CREATE INDEX ON public.orders (customer_id);
    CREATE INDEX ON public.orders (courier_code);
    CREATE INDEX ON public.order_items (order_id);
    CREATE INDEX ON public.order_items (product_id);
    CREATE INDEX ON public.comments (order_id);
    CREATE INDEX ON public.comments (parent_id);
    INSERT INTO public.customers SELECT n, 'customer ' || n FROM generate_series(1, 3) AS n;
    INSERT INTO public.couriers VALUES ('bike', 'by bike'), ('van', 'by van');
    INSERT INTO public.categories SELECT n, 'category ' || n FROM generate_series(1, 3) AS n;
    INSERT INTO public.products SELECT n, 'product ' || n FROM generate_series(1, 4) AS n;
    INSERT INTO public.product_categories VALUES (1, 1), (1, 2), (2, 2), (3, 3);
    INSERT INTO public.orders SELECT n, 1 + n % 3, CASE n % 2 WHEN 0 THEN 'bike' ELSE 'van' END, n
        FROM generate_series(1, 6) AS n;
    INSERT INTO public.order_items SELECT n, 1 + n % 6, 1 + n % 4 FROM generate_series(1, 12) AS n;
    INSERT INTO public.comments VALUES
        (1, 1, NULL, 'first'), (2, NULL, 1, 'reply'), (3, NULL, 2, 'reply to that'), (4, 3, NULL, 'second');
"""

_QUERY = """
    SELECT o.id, row_to_json(d) FROM public.orders AS o CROSS JOIN LATERAL (SELECT
        o.id, o.total,
        (SELECT c.name FROM public.customers AS c WHERE c.id = o.customer_id) AS customer,
        (SELECT c.name FROM public.couriers AS c WHERE c.code = o.courier_code) AS courier,
        ARRAY(SELECT row_to_json(i) FROM (SELECT i.id, i.amount,
            (SELECT p.name FROM public.products AS p WHERE p.id = i.product_id) AS product,
            ARRAY(SELECT (SELECT c.name FROM public.categories AS c WHERE c.id = l.category_id)
                FROM public.product_categories AS l WHERE l.product_id = i.product_id
                ORDER BY l.category_id) AS categories
            FROM public.order_items AS i WHERE i.order_id = o.id ORDER BY i.id OFFSET 0) AS i) AS items,
        ARRAY(SELECT row_to_json(c) FROM (SELECT c.text,
            ARRAY(SELECT row_to_json(r) FROM (SELECT r.text,
                ARRAY(SELECT s.text FROM public.comments AS s WHERE s.parent_id = r.id
                    ORDER BY s.id) AS replies
                FROM public.comments AS r WHERE r.parent_id = c.id ORDER BY r.id OFFSET 0) AS r) AS replies
            FROM public.comments AS c WHERE c.order_id = o.id ORDER BY c.id OFFSET 0) AS c) AS comments
    ) AS d
    WHERE o.id = ANY (%(ids)s)
"""
_BY_PRODUCT = "SELECT DISTINCT i.order_id FROM public.order_items AS i WHERE i.product_id = ANY (%(keys)s)"
_BY_CATEGORY = """
    SELECT DISTINCT i.order_id FROM public.order_items AS i WHERE i.product_id IN (
        SELECT l.product_id FROM public.product_categories AS l WHERE l.category_id = ANY (%(keys)s))
"""
_BY_COMMENT = """
    WITH RECURSIVE above AS (
        SELECT c.id, c.parent_id, c.order_id FROM public.comments AS c WHERE c.id = ANY (%(keys)s)
        UNION
        SELECT c.id, c.parent_id, c.order_id FROM above AS a JOIN public.comments AS c ON c.id = a.parent_id)
    SELECT DISTINCT a.order_id FROM above AS a WHERE a.order_id IS NOT NULL
"""


def link(
    table: str, column: str, *columns: str, path: str | None = None, keys: KeyType = KeyType.BIGINT
) -> Link:
    """A table that is followed by a column; an UPDATE of `columns` counts, too."""
    section = f"document.orders.{table}"
    return Link(
        TableName("public", table), (column,), keys, tuple(sorted({column, *columns})), path, (section,)
    )


_LINKS = (
    link("orders", "id", "customer_id", "courier_code", "total"),
    link("order_items", "order_id", "id", "product_id", "amount"),
    link("comments", "order_id", "id", "parent_id", "text"),
    link(
        "customers",
        "id",
        "name",
        path="SELECT o.id FROM public.orders AS o WHERE o.customer_id = ANY (%(keys)s)",
    ),
    link(
        "couriers",
        "code",
        "name",
        path="SELECT o.id FROM public.orders AS o WHERE o.courier_code = ANY (%(keys)s)",
        keys=KeyType.TEXT,
    ),
    link("products", "id", "name", path=_BY_PRODUCT),
    link("product_categories", "product_id", "category_id", path=_BY_PRODUCT),
    link("categories", "id", "name", path=_BY_CATEGORY),
    link("comments", "parent_id", "id", "order_id", "text", path=_BY_COMMENT),
)


def digest_of(query: str, links: Sequence[Link]) -> str:
    """A digest of what a worker would read and follow."""
    return f"{zlib.crc32(repr((query, [replace(one, documents=(1, 1)) for one in links])).encode()):08x}"


ORDERS = Document(
    name="orders",
    key_type=KeyType.BIGINT,
    partitions=2,
    shards=4,
    query=_QUERY,
    links=_LINKS,
    missing_indexes=(),
    digest=digest_of(_QUERY, _LINKS),
)
"""Six orders, with a relation of each kind."""


def changed(document: Document, query: str, links: Sequence[Link] | None = None) -> Document:
    """The document with another query, and another digest."""
    chosen = document.links if links is None else tuple(links)
    return replace(document, query=query, links=chosen, digest=digest_of(query, chosen))


def apply(conn: Conn, document: Document) -> None:
    """Have the database follow the document; what is there of another one stays."""
    name = document.name
    conn.execute("SELECT tube_ensure_exists(%s, %s)", (name, document.partitions))
    for link_ in document.own:
        _attach(conn, name, link_, 0, document.shards)
    for companion in companions_of(document, read_tubes(conn, "tube")):
        key_type = companion.key_type.value
        conn.execute("SELECT tube_companion_ensure(%s, %s, %s::regtype)", (name, companion.name, key_type))
        for shard, link_ in companion.relations.items():
            _attach(conn, companion.name, link_, shard, 1)
    conn.execute("SELECT tube_document_declare(%s, %s)", (name, document.digest))


def _attach(conn: Conn, tube: str, link_: Link, shard: int, shards: int) -> None:
    conn.execute(
        "SELECT tube_table_ensure_attached(%s, %s::text::regclass, %s, id_col => %s::name, "
        "columns => %s::name[], shards => %s)",
        (tube, str(link_.table), shard, link_.column, list(link_.columns), shards),
    )


def documents_of(conn: Conn, document: Document = ORDERS) -> Mapping[int, Any]:
    """All documents, as the query gives them for the whole table."""
    ids = [row[0] for row in conn.execute("SELECT id FROM public.orders")]
    rows = conn.execute(document.query.encode(), {"ids": ids}).fetchall()
    return dict(rows)
