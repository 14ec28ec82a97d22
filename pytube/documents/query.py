"""From the tree of a document to the query that reads it.

One table for each subquery, and no joins of several rows: there is no order of joins to choose, so no
statistics can make it a bad one. `OFFSET 0` keeps the inner query from being planned together with the
outer one: an index that gives the order of ORDER BY, or the greatest value, would tempt the planner into
reading all of it.
"""

# ruff: noqa: S608 -- names are quoted, and expressions were printed by Postgres

from __future__ import annotations

import re

from pytube.config.names import quoted
from pytube.documents.catalogue import (
    POSTGRES,
    SQL_TYPES,
    columns_of,
    comparison,
    enum_value,
    key_sql,
    parts_of,
    type_of,
)
from pytube.documents.tree import Node, Shape
from pytube.keys import part_parameter

PARAMETER = "\0"
"""Begins a stand-in for a placeholder while SQL is put together: it is in no text of Postgres."""


_NTH = re.compile(f"{PARAMETER}([0-9]+){PARAMETER}")


def _nth_parameter(place: int) -> str:
    """Stands for the placeholder of a column of the key; the first one has place 0."""
    return f"{PARAMETER}{place}{PARAMETER}"


def with_placeholder(text: str, name: str) -> str:
    """The finished SQL for psycopg, whose own sign is the %."""
    text = _NTH.sub(lambda found: f"%({part_parameter(int(found[1]))})s", text.replace("%", "%%"))
    return text.replace(PARAMETER, f"%({name})s")


def without_placeholders(text: str) -> str:
    """The SQL as Postgres can parse it."""
    return _NTH.sub("NULL", text).replace(PARAMETER, "NULL")


def document_query(root: Node) -> str:
    """Id and document of each of the documents with the ids `%(ids)s`."""
    if root.key_cols:
        return _query_by_columns(root)
    items, joins = _select_list(root)
    key = f"{root.alias}.{quoted(root.table.key[0])}"
    condition = f" AND {root.condition}" if root.condition else ""
    ids = f"{PARAMETER}::{SQL_TYPES[type_of(root.table)]}[]"
    return (
        f"SELECT {key} AS id, {_row_of(items)} AS document FROM {root.table.sql} AS {root.alias}{joins} "
        f"WHERE {key} OPERATOR({POSTGRES}.=) ANY ({ids}){condition}"
    )


def _query_by_columns(root: Node) -> str:
    """As `document_query`, of keys of several columns, each of which is an array in the order of the ids.

    The rows are found apart, one by one: joined to the arrays, the whole table might be read. The id of a row
    is the requested one, unless a collation may find another one.
    """
    items, joins = _select_list(root)
    alias, table = root.alias, root.table
    arrays = [f"{PARAMETER}::pg_catalog.text[]"]
    conditions = [root.condition] if root.condition else []
    for place, part in enumerate(parts_of(table)):
        column = table.columns[part.name]
        arrays.append(f"{_nth_parameter(place)}::{SQL_TYPES[part.type]}[]")
        value = enum_value(column, f"k.c{place}") if column.enum else f"k.c{place}"
        conditions.append(f"{alias}.{quoted(column.name)} OPERATOR({POSTGRES}.=) {value}")
    names = ", ".join(f"{alias}.{quoted(name)}" for name in sorted(root.used))
    is_exact = all(column.is_exact for column in columns_of(table))
    key = "k.id" if is_exact else key_sql(table, [f"{alias}.{quoted(name)}" for name in table.key])
    places = ", ".join(f"c{place}" for place in range(len(table.key)))
    asked = f"unnest({', '.join(arrays)}) AS k (id, {places})"
    return (
        f"SELECT {key} AS id, {_row_of(items)} AS document FROM {asked}, "
        f"LATERAL (SELECT {names} FROM {table.sql} AS {alias} WHERE {' AND '.join(conditions)} OFFSET 0) "
        f"AS {alias}{joins}"
    )


def _row_of(items: list[str]) -> str:
    return f"(SELECT pg_catalog.row_to_json(_row.*) FROM (SELECT {', '.join(items)}) AS _row)"


def join_condition(node: Node, parent: Node) -> str:
    """That a row of the node belongs to the row of its parent."""
    return " AND ".join(
        comparison(
            f"{node.alias}.{quoted(there)}",
            node.table.columns[there],
            f"{parent.alias}.{quoted(here)}",
            parent.table.columns[here],
        )
        for here, there in zip(node.parent_columns, node.columns, strict=True)
    )


def _select_list(node: Node) -> tuple[list[str], str]:
    """The fields of a row, and the joins that children need whose fields are among them."""
    items = [f"{text} AS {quoted(name)}" for name, text in node.fields]
    joins = ""
    for name, child in node.children.items():
        if child.shape is Shape.FLAT:
            alias = f"{child.alias}f"
            joins += f" LEFT JOIN LATERAL ({_object_rows(child)}) AS {alias} ON true"
            items += [f"{alias}.{quoted(one)} AS {quoted(one)}" for one in child.names()]
        else:
            items.append(f"{_subquery(child)} AS {quoted(name)}")
    return items, joins


def _subquery(node: Node) -> str:
    """What a child is in the row of its parent."""
    if node.shape is Shape.OBJECT:
        return f"(SELECT pg_catalog.row_to_json(_row.*) FROM ({_object_rows(node)}) AS _row)"
    if node.shape is Shape.ARRAY:
        items, joins = _select_list(node)
        rows = f"SELECT {', '.join(items)}{_from(node, joins, ordered=True)}"
        return f"pg_catalog.array_to_json(ARRAY(SELECT pg_catalog.row_to_json(_row.*) FROM ({rows}) AS _row))"
    value = node.fields[0][1]
    if node.shape is Shape.LIST:
        # Arrays of several lengths can't be put into one array, unless each is JSON already.
        value = f"pg_catalog.to_json({value})" if node.is_array else value
        return f"pg_catalog.array_to_json(ARRAY(SELECT {value}{_from(node, '', ordered=True)}))"
    if node.is_aggregate:
        return f"(SELECT {value}{_from(node, '', ordered=False, apart=True)})"
    return f"(SELECT {value}{_first(node, '')})"


def _object_rows(node: Node) -> str:
    items, joins = _select_list(node)
    return f"SELECT {', '.join(items)}{_first(node, joins)}"


def _first(node: Node, joins: str) -> str:
    """The only row, or the first one. A LIMIT has its price: it stands where no unique index says as much."""
    if node.is_one:
        # A subquery joined to the parent's row is planned apart, or it becomes a join over the whole table.
        return _from(node, joins, ordered=False, apart=node.shape is Shape.FLAT)
    return _from(node, joins, ordered=True) + ("" if node.limit else " LIMIT 1")


def _from(node: Node, joins: str, *, ordered: bool, apart: bool = False) -> str:
    """The rows of a node that belong to one row of its parent; from FROM on."""
    parent = node.above
    tail = ""
    if ordered:
        tail = f" ORDER BY {node.order}" + (f" LIMIT {node.limit}" if node.limit else "")
    condition = join_condition(node, parent) + (f" AND {node.condition}" if node.condition else "")
    columns = ", ".join(f"{node.alias}.{quoted(name)}" for name in sorted(node.used))
    fenced = (
        f"(SELECT {columns} FROM {node.table.sql} AS {node.alias} WHERE {condition} OFFSET 0) AS {node.alias}"
    )
    if parent.shape is Shape.JOIN_TABLE:
        related = join_condition(parent, parent.above)
        return f" FROM {parent.table.sql} AS {parent.alias}, LATERAL {fenced}{joins} WHERE {related}{tail}"
    if ordered or apart:
        return f" FROM {fenced}{joins}{tail}"
    return f" FROM {node.table.sql} AS {node.alias}{joins} WHERE {condition}"
