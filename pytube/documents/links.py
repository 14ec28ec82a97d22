"""From the tree of a document to what is followed: links, and the paths from their values to documents.

A path begins at the parent of the node whose row has changed: by its link value, so the row itself need not
be there any more. It goes up one table at a time, each in a subquery of its own, for the reasons that
`query.py` has.
"""

# ruff: noqa: S608 -- names are quoted, and expressions are those that Postgres printed

from __future__ import annotations

from dataclasses import dataclass, field

from pytube.documents.catalogue import Catalogue, Column, Table, comparison, equals, needed_collation, quoted
from pytube.documents.model import Link, TableName
from pytube.documents.query import PARAMETER, with_placeholder
from pytube.documents.tree import Node, Shape, nodes_of, root_key_type
from pytube.model import KeyType

_ARRAYS = {
    KeyType.BIGINT: "pg_catalog.int8[]",
    KeyType.UUID: "pg_catalog.uuid[]",
    KeyType.TEXT: "pg_catalog.text[]",
}
_KEYS = {
    KeyType.BIGINT: "{}::pg_catalog.int8",
    KeyType.UUID: "{}::pg_catalog.uuid",
    KeyType.TEXT: '{}::pg_catalog.text COLLATE "C"',  # texts are told apart byte by byte
}


@dataclass(frozen=True, slots=True)
class Step:
    """One table that a path reads: by which columns, and which ones lead on."""

    path: str
    """The section whose condition holds."""
    table: Table
    by: tuple[str, ...]
    gives: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Path:
    """From the values of a node's link to keys of documents."""

    sql: str | None
    """None: they are keys of documents."""
    steps: tuple[Step, ...] = ()


@dataclass(slots=True)
class Group:
    """All nodes that one link serves: those of one table, joined by one column."""

    nodes: list[Node] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    is_relation: bool = False
    """Whether its values go through paths, be they keys of documents or not."""

    def takes(self, column: str) -> bool:
        """Whether it can be followed by this column."""
        return not self.nodes or self.nodes[0].link_column.name == column

    @property
    def steps(self) -> list[list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]]:
        """What its paths read, for a digest: nothing that Postgres printed."""
        return [
            [(one.path, str(one.table.name), one.by, one.gives) for one in path.steps] for path in self.paths
        ]


def groups_of(root: Node) -> list[Group]:
    """What is followed: the root first, then each table and column in the order of the file.

    A tube follows a table by one column: values that are keys of documents touch them at once where the table
    is free, and go by a path, which leads nowhere else, where it is not.
    """
    own: dict[TableName, Group] = {}
    relations: dict[tuple[TableName, str], Group] = {}
    order = []
    for node in nodes_of(root):
        path = Path(None) if node is root else path_of(node)
        name, column = node.table.name, node.link_column.name
        if path.sql is None and own.setdefault(name, Group()).takes(column):
            group = own[name]
        else:
            group = relations.setdefault((name, column), Group(is_relation=True))
        if not group.nodes:
            order.append(group)
        group.nodes.append(node)
        group.paths.append(path)
    return order


def link_of(group: Group, root: Node, catalogue: Catalogue) -> Link:
    """The link of a group, with SQL and statistics."""
    node = group.nodes[0]
    column = node.link_column
    key_type = column.key_type
    assert key_type is not None
    used = {stored for one in group.nodes for name in one.used for stored in _stored(one.table, name)}
    path = None
    if group.is_relation:
        keys = _KEYS[root_key_type(root)].format(f"pg_catalog.unnest({PARAMETER}::{_ARRAYS[key_type]})")
        at_once = f"SELECT DISTINCT {keys} AS key"
        texts = dict.fromkeys(at_once if one.sql is None else one.sql for one in group.paths)
        path = with_placeholder(" UNION ".join(texts), "keys")
    fan_outs = [_fan_out(one, catalogue) for one in {one.sql: one for one in group.paths}.values()]
    return Link(
        node.table.name,
        column.name,
        key_type,
        tuple(sorted(used)),
        path,
        tuple(dict.fromkeys(one.path for one in group.nodes)),
        (sum(mean for mean, _ in fan_outs), sum(worst for _, worst in fan_outs)),
    )


def _stored(table: Table, name: str) -> tuple[str, ...]:
    """The columns whose change a trigger can see: of a virtual column those that it is computed of."""
    return table.columns[name].computed_of or (name,)


def missing_indexes(root: Node) -> tuple[str, ...]:
    """What a read, or a path, would search whole tables for; a statement each, with the reason behind it."""
    needed: dict[tuple[TableName, tuple[str, ...]], tuple[Table, str]] = {}
    for node in list(nodes_of(root))[1:]:
        needed.setdefault((node.table.name, node.columns), (node.table, f"to read {node.path}"))
        for step in path_of(node).steps:
            reason = f"to find the documents that a change of {node.table.name} touches"
            needed.setdefault((step.table.name, step.by), (step.table, reason))
    return tuple(
        f"CREATE INDEX CONCURRENTLY ON {table.sql} ({', '.join(map(quoted, columns))});  -- {reason}"
        for (_, columns), (table, reason) in needed.items()
        if not table.finds(columns)
    )


# --- paths ------------------------------------------------------------------------------------------------


def path_of(node: Node) -> Path:
    """The path from the values of a node's link."""
    column = node.link_column
    assert column.key_type is not None
    values = _Values(f"{PARAMETER}::{_ARRAYS[column.key_type]}", (column,), is_array=True)
    parent = node.above
    by: tuple[str, ...] = (node.parent_columns[node.link],)
    steps: list[Step] = []
    while True:
        # A row between that is joined by the very columns by which it joins its own parent adds nothing.
        while parent.shape is not Shape.ROOT and parent.columns == by and not parent.condition:
            parent, by = parent.above, parent.parent_columns
        if parent.shape is Shape.ROOT:
            break
        values = _read(parent, by, values, parent.columns)
        steps.append(Step(parent.path, parent.table, by, parent.columns))
        parent, by = parent.above, parent.parent_columns
    key = parent.table.key
    place = by.index(key[0]) if key[0] in by else None
    if place is None or not _is_key(values.columns[place], parent.table.columns[key[0]]):
        values = _read(parent, by, values, key)
        steps.append(Step(parent.path, parent.table, by, key))
        place = 0
    if not steps:
        return Path(None)
    name = f"v.c{place + 1}"
    key_sql = _KEYS[root_key_type(parent)].format(name)
    return Path(
        f"SELECT DISTINCT {key_sql} AS key FROM ({values.sql}) AS v WHERE {name} IS NOT NULL", tuple(steps)
    )


def _is_key(column: Column, key: Column) -> bool:
    """Whether values of a column that equal a document's key are that key, to the byte."""
    return column.key_type is key.key_type and column.is_exact and key.is_exact


@dataclass(frozen=True, slots=True)
class _Values:
    """Values that a step begins with."""

    sql: str
    """An array; or a SELECT of the columns c1, c2 …"""
    columns: tuple[Column, ...]
    """That they come from."""
    is_array: bool = False


def _read(node: Node, by: tuple[str, ...], values: _Values, gives: tuple[str, ...]) -> _Values:
    """The columns `gives` of the rows of a node that have the values in the columns `by`."""
    alias, columns = node.alias, node.table.columns
    outs = ", ".join(f"{alias}.{quoted(name)} AS c{place}" for place, name in enumerate(gives, 1))
    condition = f" AND {node.condition}" if node.condition else ""
    rows = f"SELECT {outs} FROM {node.table.sql} AS {alias} WHERE"
    if len(by) == 1:
        on = _is_among(alias, columns[by[0]], values)
        text = f"SELECT DISTINCT r.* FROM ({rows} {on}{condition} OFFSET 0) AS r"
    else:
        on = " AND ".join(
            comparison(f"{alias}.{quoted(name)}", columns[name], f"v.c{place}", values.columns[place - 1])
            for place, name in enumerate(by, 1)
        )
        lateral = f"LATERAL ({rows} {on}{condition} OFFSET 0) AS r"
        text = f"SELECT DISTINCT r.* FROM ({values.sql}) AS v, {lateral}"
    return _Values(text, tuple(columns[name] for name in gives))


def _is_among(alias: str, column: Column, values: _Values) -> str:
    source = values.sql if values.is_array else f"ARRAY({values.sql})"
    collation = needed_collation(column, values.columns[0])
    if collation is not None:
        source = f"({source}) COLLATE {collation}"
    return f"{alias}.{quoted(column.name)} {equals(column, values.columns[0])} ANY ({source})"


def _fan_out(path: Path, catalogue: Catalogue) -> tuple[float, float]:
    """How many documents one value leads to: the mean, and the worst."""
    mean = worst = 1.0
    for step in path.steps:
        some, most = catalogue.matches(step.table, step.by)
        mean, worst = mean * some, worst * most
    return mean, worst
