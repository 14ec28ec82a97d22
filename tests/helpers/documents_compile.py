"""Tables whose names and relations are as awkward as Postgres allows, a document over them, and it by hand.

Names with capitals, spaces, quotes and percent signs, keys that are texts, join tables and references without
foreign keys, a table that refers to the root by two columns, rows that are hidden by NULL in a condition.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from typing import Any

import psycopg

from pytube.config import parse
from pytube.documents.catalogue import Catalogue
from pytube.documents.compile import compile_document
from pytube.documents.model import Document, Link
from pytube.keys import part_parameter

Conn = psycopg.Connection[tuple[Any, ...]]

SCHEMA = '''
CREATE SCHEMA "My Shop";
SET search_path = "My Shop";
CREATE DOMAIN code AS varchar(20);
CREATE TABLE regions (a int, b text, name text, PRIMARY KEY (a, b));
CREATE TABLE "Customers" (no int PRIMARY KEY, "Full ""Name""" text, region_a int, region_b text,
    FOREIGN KEY (region_a, region_b) REFERENCES regions);
CREATE TABLE "Order" ("Id" text PRIMARY KEY, "Customer No" int REFERENCES "Customers", "user" text, x int,
    "50%" text, parent text REFERENCES "Order", deleted boolean);
CREATE TABLE items (id uuid PRIMARY KEY, sku code UNIQUE NOT NULL, title text, tags text[]);
CREATE TABLE lines (id bigint PRIMARY KEY, "order" text NOT NULL REFERENCES "Order", sku text, qty smallint,
    done boolean);
CREATE TABLE item_labels (item uuid, label code);
CREATE TABLE labels (code text PRIMARY KEY, caption text);
CREATE TABLE messages (id int PRIMARY KEY, "order" text REFERENCES "Order", reply_to int REFERENCES messages,
    body text);
CREATE TABLE payments (id int PRIMARY KEY, "order" text REFERENCES "Order",
    backup_for text REFERENCES "Order", amount numeric, at timestamp);
CREATE TABLE log ("order" text, entry text, level int);
RESET search_path;
'''

DECLARATION = r'''
[document.orders]
table = '"My Shop"."Order"'
fields = ["Id", "x", "user", "50%", "'100%s' || \"50%\" AS \"a %(ids)s b\"", 'upper("user")']
where = "deleted IS NOT TRUE AND x % 10 <> 9"

[document.orders.customer]
one = '"My Shop"."Customers"'
fields = ['"Full ""Name""" AS "Na""me"']

[document.orders.customer.region]
one = '"My Shop".regions'
fields = ["*"]

[document.orders.parent]
one = '"My Shop"."Order"'
by = "parent"
fields = ["x AS parent_x"]
flatten = true

[document.orders.parent.parent_lines]
many = '"My Shop".lines'
list = "qty"
order_by = ["qty DESC NULLS LAST", "sku"]

[document.orders.children]
many = '"My Shop"."Order"'
by = "parent"
list = "Id"
where = "x > 2"

[document.orders.lines]
many = '"My Shop".lines'
fields = ["qty"]
where = "NOT done"

[document.orders.lines.item]
one = '"My Shop".items'
on = { sku = "sku" }
fields = ["title", "tags"]

[document.orders.lines.item."All labels"]
many = '"My Shop".labels'
through = '"My Shop".item_labels'
on = [{ id = "item" }, { label = "code" }]
fields = ["caption"]
order_by = 'caption COLLATE "C" DESC'

[document.orders.lines.tag_lists]
many = '"My Shop".items'
on = { sku = "sku" }
list = "tags"

[document.orders.messages]
many = '"My Shop".messages'
by = "order"
where = "reply_to IS NULL"
fields = ["body"]
tree = { by = "reply_to", as = "replies", depth = 3, where = "body <> 'm3'" }

[document.orders.payments]
many = '"My Shop".payments'
by = "order"
fields = ["amount"]

[document.orders.backups]
many = '"My Shop".payments'
by = "backup_for"
value = "sum(amount)"

[document.orders.last_payment]
many = '"My Shop".payments'
by = "order"
order_by = "at DESC NULLS LAST"
limit = 1
value = "at"

[document.orders.first]
one = '"My Shop".payments'
on = { Id = "order" }
order_by = "amount"
fields = ["amount AS least", "at AS x"]

[document.orders.log]
many = '"My Shop".log'
on = { Id = "order" }
order_by = "level"
limit = 3
fields = ["entry"]

[tube.orders.sink]
type = "jsonl"
'''

TABLES = {
    "regions": ("a", "b", "name"),
    "Customers": ("no", 'Full "Name"', "region_a", "region_b"),
    "Order": ("Id", "Customer No", "user", "x", "50%", "parent", "deleted"),
    "items": ("id", "sku", "title", "tags"),
    "lines": ("id", "order", "sku", "qty", "done"),
    "item_labels": ("item", "label"),
    "labels": ("code", "caption"),
    "messages": ("id", "order", "reply_to", "body"),
    "payments": ("id", "order", "backup_for", "amount", "at"),
    "log": ("order", "entry", "level"),
}
Row = dict[str, Any]


def fill(connection: Conn, seed: int) -> None:
    """Few rows, so that much refers to much; each kind of row that nothing refers to is there, too."""
    rng = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    keys = ['a"b', "ü%", "A", "a", " ", "%s", "x'y", "\\", "ß", "Z"]
    skus = ["s1", "s2", "s3", "S1"]
    uuids = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(len(skus))]
    labels = ["l1", "l2", "L1"]
    rows: dict[str, list[tuple[Any, ...]]] = {
        "regions": [(a, b, maybe(f"r{a}{b}")) for a in (1, 2) for b in ("n", "s")],
        "Customers": [
            (no, maybe(f'c"{no}'), maybe(rng.choice((1, 2))), rng.choice("ns")) for no in range(1, 5)
        ],
        "Order": [
            (key, maybe(rng.randint(1, 4)), maybe("Ann"), rng.randint(0, 9), maybe("5%"),
             maybe(rng.choice(keys[:place])) if place else None, maybe(rng.random() < 0.2))
            for place, key in enumerate(keys)
        ],
        "items": [(one, sku, maybe(f"t{sku}"), maybe(["p", "q"][: rng.randint(0, 2)]))
                  for one, sku in zip(uuids, skus, strict=True)],
        "lines": [
            (number, rng.choice(keys), maybe(rng.choice([*skus, "none"])), maybe(rng.randint(1, 3)),
             maybe(rng.random() < 0.3))
            for number in range(30)
        ],
        "item_labels": [(rng.choice(uuids), rng.choice([*labels, "none"])) for _ in range(6)],
        "labels": [(code, maybe(rng.choice("ab"))) for code in labels],
        "messages": [
            (number, maybe(rng.choice(keys)), maybe(rng.randrange(number)) if number else None,
             maybe(f"m{number % 5}"))
            for number in range(25)
        ],
        "payments": [
            (number, maybe(rng.choice(keys)), maybe(rng.choice(keys)), maybe(rng.randint(1, 300) / 4),
             maybe(f"2020-01-0{rng.randint(1, 9)}"))
            for number in range(20)
        ],
        "log": [(rng.choice(keys), rng.choice("abc"), rng.randint(1, 2)) for _ in range(25)],
    }  # fmt: skip
    for table, values in rows.items():
        marks = ", ".join(["%s"] * len(TABLES[table]))
        for row in values:
            connection.execute(f'INSERT INTO "My Shop"."{table}" VALUES ({marks})'.encode(), row)


class ByHand:
    """The documents of `DECLARATION`, put together in Python, and the rows that each of them was made of."""

    def __init__(self, connection: Conn) -> None:
        self.tables: dict[str, list[Row]] = {}
        for name, columns in TABLES.items():
            # Numbers and times as they are in JSON.
            rows = connection.execute(f'SELECT row_to_json(t)::text FROM "My Shop"."{name}" AS t'.encode())
            self.tables[name] = [json.loads(text, parse_float=str) for (text,) in rows]
            assert all(tuple(row) == columns for row in self.tables[name])
        self.documents: dict[str, Any] = {}
        self.holders: dict[tuple[str, str], set[str]] = defaultdict(set)
        """By table and row: the documents that have something of it."""
        for row in self.tables["Order"]:
            if row["deleted"] is not True and row["x"] % 10 != 9:
                self.key = row["Id"]
                self.documents[self.key] = self._order(row)

    def holders_of(self, table: str, row: Row) -> set[str]:
        """The documents that have something of a row."""
        return self.holders[table, json.dumps(row)]

    def _rows(self, table: str, **values: Any) -> list[Row]:
        found = [
            row
            for row in self.tables[table]
            if all(value is not None and row[column] == value for column, value in values.items())
        ]
        for row in found:
            self.holders[table, json.dumps(row)].add(self.key)
        return found

    def _one(self, table: str, **values: Any) -> Row | None:
        return next(iter(self._rows(table, **values)), None)

    def _order(self, row: Row) -> Row:
        self.holders["Order", json.dumps(row)].add(row["Id"])
        percent, user = row["50%"], row["user"]
        customer = self._one("Customers", no=row["Customer No"])
        parent = self._one("Order", Id=row["parent"])
        payments = sorted(self._rows("payments", order=row["Id"]), key=lambda one: int(one["id"]))
        backups = [
            float(one["amount"]) for one in self._rows("payments", backup_for=row["Id"]) if one["amount"]
        ]
        entries = sorted(self._rows("log", order=row["Id"]), key=lambda one: (one["level"], one["entry"]))
        latest = sorted(payments, key=lambda one: one["at"] or "", reverse=True)
        least = sorted(payments, key=lambda one: (one["amount"] is None, float(one["amount"] or 0)))
        return {
            "Id": row["Id"],
            "x": row["x"],
            "user": user,
            "50%": percent,
            "a %(ids)s b": None if percent is None else "100%s" + percent,
            "upper": None if user is None else user.upper(),
            "customer": customer and self._customer(customer),
            "parent_x": parent and parent["x"],
            "parent_lines": parent and self._quantities(parent),
            "children": sorted(one["Id"] for one in self._rows("Order", parent=row["Id"]) if one["x"] > 2),
            "lines": [self._line(line) for line in self._lines(row) if line["done"] is False],
            "messages": [
                self._message(one, 3)
                for one in sorted(self._rows("messages", order=row["Id"]), key=lambda one: int(one["id"]))
                if one["reply_to"] is None
            ],
            "payments": [{"amount": one["amount"]} for one in payments],
            "backups": sum(backups) if backups else None,
            "last_payment": latest[0]["at"] if latest else None,
            "first": {"least": least[0]["amount"], "x": least[0]["at"]} if least else None,
            "log": [{"entry": one["entry"]} for one in entries[:3]],
        }

    def _customer(self, row: Row) -> Row:
        region = self._one("regions", a=row["region_a"], b=row["region_b"])
        return {'Na"me': row['Full "Name"'], "region": region}

    def _lines(self, order: Row) -> list[Row]:
        return sorted(self._rows("lines", order=order["Id"]), key=lambda one: int(one["id"]))

    def _quantities(self, order: Row) -> list[Any]:
        lines = sorted(self._lines(order), key=lambda one: (one["sku"] is None, one["sku"] or ""))
        lines.sort(key=lambda one: -(one["qty"] or 0))
        return [one["qty"] for one in lines]

    def _line(self, line: Row) -> Row:
        item = self._one("items", sku=line["sku"])
        return {
            "qty": line["qty"],
            "item": item and self._item(item),
            "tag_lists": [] if item is None else [item["tags"]],
        }

    def _item(self, item: Row) -> Row:
        labels = [
            label
            for join in self._rows("item_labels", item=item["id"])
            for label in self._rows("labels", code=join["label"])
        ]
        labels.sort(key=lambda one: str(one["code"]))
        labels.sort(key=lambda one: (one["caption"] is None, one["caption"] or ""), reverse=True)
        return {
            "title": item["title"],
            "tags": item["tags"],
            "All labels": [{"caption": one["caption"]} for one in labels],
        }

    def _message(self, message: Row, depth: int) -> Row:
        if depth == 1:
            return {"body": message["body"]}
        replies = sorted(self._rows("messages", reply_to=message["id"]), key=lambda one: int(one["id"]))
        kept = [one for one in replies if one["body"] not in (None, "m3")]
        return {"body": message["body"], "replies": [self._message(one, depth - 1) for one in kept]}


# --- compiled ---------------------------------------------------------------------------------------------

_POSTGRES = '[postgres]\ndsn = "dbname=x"\n'


def compiled(connection: Conn, text: str) -> Document:
    """The only document that a text declares."""
    config = parse(_POSTGRES + text)
    ((name, section),) = config.documents.items()
    return compile_document(name, section, Catalogue(connection))


def documents_of(connection: Conn, document: Document, ids: list[Any]) -> dict[Any, Any]:
    """What the query gives for the ids, by id."""
    arguments = {"ids": ids}
    if document.key is not None:
        known, columns = document.key.columns_of(ids)
        parts = {part_parameter(place): list(values) for place, values in enumerate(columns)}
        arguments = {"ids": list(known), **parts}
    rows = connection.execute(document.query.encode(), arguments).fetchall()
    found = {key: json.loads(json.dumps(body), parse_float=str) for key, body in rows}
    assert len(found) == len(rows)
    return found


def touched(connection: Conn, link: Link, row: Row) -> set[Any]:
    """The keys of documents that a change of the row touches."""
    values = [row[name] for name in link.by]
    if None in values:
        return set()
    value = values[0]
    if link.path is None:
        return {json.dumps(values, ensure_ascii=False) if len(link.by) > 1 else value}
    rows = connection.execute(link.path.encode(), {"keys": [value]}).fetchall()
    found = {key for (key,) in rows}
    assert None not in found
    assert len(found) == len(rows)
    return found
