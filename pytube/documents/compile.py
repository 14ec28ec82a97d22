"""A declared document, compiled: the query; the links, and the paths from their values to documents.

A path begins at the parent of the node whose row has changed: by its link value, so the row itself need not
be there any more. It goes up one table at a time, each in a separate subquery, for the reasons that
`query.py` has.
"""

# ruff: noqa: S608 -- names are quoted, and expressions were printed by Postgres

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytube.config.documents import DocumentSection, without_layout
from pytube.config.names import TableName, quoted
from pytube.config.section import key_path
from pytube.documents.catalogue import (
    SQL_TYPES,
    Catalogue,
    Column,
    Table,
    are_parts,
    columns_of,
    comparison,
    equals,
    is_same,
    key_sql,
    needed_collation,
    parts_of,
    type_of,
)
from pytube.documents.expressions import Expressions
from pytube.documents.model import Document, Link
from pytube.documents.query import PARAMETER, document_query, with_placeholder, without_placeholders
from pytube.documents.tree import Node, Shape, build_tree, nodes_of
from pytube.errors import ConfigError
from pytube.model import KeyType


def compile_document(name: str, section: DocumentSection, catalogue: Catalogue) -> Document:
    """The document that `[document.NAME]` declares, as the tables are now.

    Raises:
        ConfigError: the declaration doesn't fit the tables, or this role can't find out.
    """
    path = key_path(("document", name))
    root = build_tree(path, section, catalogue)
    query = document_query(root)
    groups = groups_of(root)
    shard_place = None if section.shard_by is None else root.table.key.index(section.shard_by)
    links = tuple(link_of(group, root, catalogue, shard_place) for group in groups)
    check = Expressions(catalogue.connection).check_query
    check(without_placeholders(query), path)
    for link in links:
        if link.path is not None:
            check(link.path.replace("%(keys)s", "NULL").replace("%%", "%"), link.sections[0])
    return Document(
        name,
        type_of(root.table),
        section.partitions,
        section.shards,
        with_placeholder(query, "ids"),
        links,
        missing_indexes(root, groups),
        _digest(section, root, groups, links),
        parts_of(root.table),
        columns={
            f"{node.table.name}.{name}": node.table.columns[name].base
            for node in nodes_of(root)
            for name in sorted(node.used)
        },
    )


def _digest(section: DocumentSection, root: Node, groups: Sequence[Group], links: Sequence[Link]) -> str:
    """The digest of the declaration, and of its resolution by the catalog.

    Never of text that Postgres printed: another version prints the same otherwise.
    """
    canonical = {
        "declaration": without_layout(section),
        "nodes": [
            (
                node.path,
                str(node.table.name),
                node.parent_columns,
                node.columns,
                [name for name, _ in node.fields],
            )
            for node in nodes_of(root)
        ],
        "key": [(one.name, one.type.value) for one in parts_of(root.table)],
        "links": [
            (str(link.table), link.by, link.key_type.value, link.columns, group.is_relation, group.steps)
            for link, group in zip(links, groups, strict=True)
        ],
    }
    text = json.dumps(canonical, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# --- links ----------------------------------------------------------------------------------------------


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
    """All nodes that one link serves: nodes of one table, joined by one column, or by the key's columns."""

    nodes: list[Node] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    is_relation: bool = False
    """Whether its values go through paths, be they keys of documents or not."""

    def takes(self, node: Node) -> bool:
        """Whether it can be followed by the node's own link."""
        return not self.nodes or _own_link(self.nodes[0]) == _own_link(node)

    @property
    def steps(self) -> list[list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]]:
        """What its paths read, for a digest: nothing that Postgres printed."""
        return [
            [(one.path, str(one.table.name), one.by, one.gives) for one in path.steps] for path in self.paths
        ]


def groups_of(root: Node) -> list[Group]:
    """The groups to follow: the root first, then each table and column in the order of the file.

    A tube follows a table in one way: values that are keys of documents touch them directly if the table is
    free. If it is not, they go by a path, which leads nowhere else; of several columns the link does.
    """
    own: dict[TableName, Group] = {}
    relations: dict[tuple[TableName, str], Group] = {}
    order = []
    for node in nodes_of(root):
        name = node.table.name
        path = Path(None) if node is root or node.key_cols else path_of(node)
        if path.sql is None and own.setdefault(name, Group()).takes(node):
            group = own[name]
        else:
            path = _path_by_link(node) if node.key_cols else path
            group = relations.setdefault((name, node.link_column.name), Group(is_relation=True))
        if not group.nodes:
            order.append(group)
        group.nodes.append(node)
        group.paths.append(path)
    return order


def _own_link(node: Node) -> tuple[str, ...]:
    return node.key_cols or (node.link_column.name,)


def _path_by_link(node: Node) -> Path:
    if node.link_column.key_type is None:
        raise ConfigError(
            f"{node.path}: {node.table.name} holds keys of documents by {', '.join(node.key_cols)} and in "
            "another way, and is followed by one column in one of them, an integer, uuid or text (text, "
            "varchar); it has none there"
        )
    return path_of(node)


def link_of(group: Group, root: Node, catalogue: Catalogue, shard_place: int | None) -> Link:
    """The link of a group, with SQL and statistics; documents' shards depend on that column of the key."""
    node = group.nodes[0]
    key_cols = () if group.is_relation else node.key_cols
    column = node.table.columns[key_cols[0]] if key_cols else node.link_column
    key_type = KeyType.TEXT if key_cols else column.key_type
    assert key_type is not None
    used = {stored for one in group.nodes for name in one.used for stored in _stored(one.table, name)}
    path = None
    if group.is_relation:
        texts = dict.fromkeys(_at_once(root, key_type) if one.sql is None else one.sql for one in group.paths)
        path = with_placeholder(" UNION ".join(texts), "keys")
    fan_outs = [_fan_out(one, catalogue) for one in {one.sql: one for one in group.paths}.values()]
    return Link(
        node.table.name,
        key_cols or (column.name,),
        key_type,
        tuple(sorted(used)),
        path,
        tuple(dict.fromkeys(one.path for one in group.nodes)),
        (sum(mean for mean, _ in fan_outs), sum(worst for _, worst in fan_outs)),
        key_cols[shard_place] if key_cols and shard_place is not None else None,
    )


def _at_once(root: Node, key_type: KeyType) -> str:
    """The path of values that are keys of documents."""
    keys = key_sql(root.table, [f"pg_catalog.unnest({PARAMETER}::{SQL_TYPES[key_type]}[])"])
    return f"SELECT DISTINCT {keys} AS key"


def _stored(table: Table, name: str) -> tuple[str, ...]:
    """The columns whose change a trigger can see; a virtual column stands for the ones that it reads."""
    return table.columns[name].computed_of or (name,)


def missing_indexes(root: Node, groups: Sequence[Group]) -> tuple[str, ...]:
    """What a read, or a path, would search whole tables for; a statement each, with the reason behind it."""
    paths = {node: path for group in groups for node, path in zip(group.nodes, group.paths, strict=True)}
    needed: dict[tuple[TableName, tuple[str, ...]], tuple[Table, str]] = {}
    for node in list(nodes_of(root))[1:]:
        needed.setdefault((node.table.name, node.columns), (node.table, f"to read {node.path}"))
        for step in paths[node].steps:
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
    values = _Values(f"{PARAMETER}::{SQL_TYPES[column.key_type]}[]", (column,), is_array=True)
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
    root = parent.table
    places = [by.index(name) for name in root.key if name in by]
    if not _are_key([values.columns[place] for place in places], columns_of(root)):
        values = _read(parent, by, values, root.key)
        steps.append(Step(parent.path, root, by, root.key))
        places = list(range(len(root.key)))
    if not steps:
        return Path(None)
    names = [f"v.c{place + 1}" for place in places]
    are_there = " AND ".join(f"{name} IS NOT NULL" for name in names)
    return Path(
        f"SELECT DISTINCT {key_sql(root, names)} AS key FROM ({values.sql}) AS v WHERE {are_there}",
        tuple(steps),
    )


def _are_key(columns: Sequence[Column], key: Sequence[Column]) -> bool:
    """Whether values of columns equal to the columns of a document's key are that key, to the byte."""
    if len(columns) < len(key):
        return False
    return is_same(columns[0], key[0]) if len(key) == 1 else are_parts(columns, key)


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
