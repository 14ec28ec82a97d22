"""A declared document as a tree: a node for each table that it reads, with how it joins the one above.

A join table is a separate node, between the nodes that it relates. So each node joins its parent by columns
of both, and has one condition, its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pytube.config.documents import ChildSection, DocumentSection, PartSection, TreeSection
from pytube.config.names import quoted, table_name
from pytube.config.section import key_path
from pytube.documents.catalogue import (
    Catalogue,
    Column,
    ForeignKey,
    Table,
    are_parts,
    columns_of,
    refuse_key,
    refuse_shard_by,
)
from pytube.documents.expressions import Expressions
from pytube.errors import ConfigError

_MOST_NODES = 500
"""Tables in one document, each level of a tree counted: more are likely an accident."""

_LONGEST_NAME = 63


class Shape(enum.Enum):
    """The form of a node's rows in the document."""

    ROOT = enum.auto()
    OBJECT = enum.auto()
    ARRAY = enum.auto()
    LIST = enum.auto()
    """An array of scalars."""
    VALUE = enum.auto()
    """A scalar."""
    FLAT = enum.auto()
    """Fields of the parent."""
    JOIN_TABLE = enum.auto()
    """Nothing: it leads to the node below."""


@dataclass(eq=False, slots=True)
class Node:
    """One table of a document, in one place of it."""

    path: str
    """Where the file names it, e.g. `document.orders.items`."""
    table: Table
    alias: str
    """Of the table in SQL; no other node has it."""
    shape: Shape
    parent: Node | None = None
    """The node that it joins; for a table read `through` a join table, the join table."""
    parent_columns: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """Those by which it joins its parent, in the order of the parent's."""
    link: int = 0
    """Which of them is the link: by which alone the table is followed."""
    key_cols: tuple[str, ...] = ()
    """The columns that hold a key of the document of several columns, in its order; empty: none do."""
    fields: list[tuple[str, str]] = field(default_factory=list)
    """Names and expressions. One without a name that matters for a list or a value."""
    condition: str = ""
    order: str = ""
    limit: int | None = None
    is_aggregate: bool = False
    """Whether its value is one for all rows."""
    is_array: bool = False
    """Whether its list or value is an array itself."""
    used: set[str] = field(default_factory=set)
    """The columns of its table that the document depends on."""
    children: dict[str, Node] = field(default_factory=dict)
    """By the name of the field that each becomes."""

    @property
    def above(self) -> Node:
        """The parent; not for the root."""
        assert self.parent is not None
        return self.parent

    @property
    def link_column(self) -> Column:
        """The column by which its table is followed."""
        return self.table.columns[self.columns[self.link]]

    @property
    def is_one(self) -> bool:
        """Whether no other row can join the same row of the parent."""
        return self.table.is_unique(self.columns) and self.above.shape is not Shape.JOIN_TABLE

    def names(self) -> Iterator[str]:
        """The fields that it has, or gives to its parent."""
        for name, _ in self.fields:
            yield name
        for name, child in self.children.items():
            if child.shape is Shape.FLAT:
                yield from child.names()
            else:
                yield name


def nodes_of(node: Node) -> Iterator[Node]:
    """The node and all below it, each after its parent."""
    yield node
    for child in node.children.values():
        if child.above is not node:
            yield child.above
        yield from nodes_of(child)


def build_tree(path: str, section: DocumentSection, catalogue: Catalogue) -> Node:
    """The tree of a document.

    Raises:
        ConfigError: the declaration doesn't fit the tables; with the key and a remedy.
    """
    return _Builder(catalogue, Expressions(catalogue.connection)).root(path, section)


@dataclass(slots=True)
class _Builder:
    catalogue: Catalogue
    expressions: Expressions
    count: int = 0

    def root(self, path: str, section: DocumentSection) -> Node:
        table = self._table(section.table, path)
        node = self._node(path, table, Shape.ROOT)
        refuse_key(path, table)
        refuse_shard_by(path, table, section.shard_by)
        node.link = 0
        node.columns = table.key
        node.key_cols = table.key if len(table.key) > 1 else ()
        self._fill(node, section)
        return node

    def child(self, path: str, section: ChildSection, parent: Node) -> Node:
        table = self._table(section.table, path)
        if section.through is not None:
            between = self._join_table(path, section, parent)
            node = self._node(path, table, _shape_of(section))
            self._join(between, node, *self._second_edge(path, section, between, table))
        else:
            node = self._node(path, table, _shape_of(section))
            kind = "one" if section.one is not None else "many"
            on = None if section.on is None else section.on[0]
            by = None if section.by is None else [name for names in section.by for name in names]
            self._join(parent, node, *self._edge(path, parent.table, table, kind, by, on))
        node.limit = section.limit
        self._fill(node, section)
        self._order(node, section.order_by or ())
        if section.tree is not None and section.tree.depth > 1:
            self._level_below(section, section.tree, node)
        _refuse_clashes(node)
        return node

    # --- the tables ---------------------------------------------------------------------------------------

    def _table(self, written: str, path: str) -> Table:
        """A table, all of whose rows this role sees."""
        table = self.catalogue.table(table_name(written), path)
        if table.hides_rows:
            raise ConfigError(
                f"{path}: row security of {table.name} may hide rows from this role, so documents would be "
                "deleted, or not be found by changes; give the role BYPASSRLS"
            )
        return table

    def _node(self, path: str, table: Table, shape: Shape) -> Node:
        self.count += 1
        if self.count > _MOST_NODES:
            raise ConfigError(
                f"{path}: the document has more than {_MOST_NODES} tables, each level of a tree counted; "
                "lower depth"
            )
        return Node(path, table, f"n{self.count}", shape, used=set(table.key))

    def _join_table(self, path: str, section: ChildSection, parent: Node) -> Node:
        assert section.through is not None
        path = f"{path}.through"
        table = self._table(section.through, path)
        node = self._node(path, table, Shape.JOIN_TABLE)
        on = None if section.on is None else section.on[0]
        by = None if section.by is None else section.by[0]
        self._join(parent, node, *self._edge(path, parent.table, table, "many", by, on))
        return node

    def _second_edge(
        self, path: str, section: ChildSection, between: Node, table: Table
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        on = None if section.on is None else section.on[1]
        by = None if section.by is None else section.by[1]
        return self._edge(path, between.table, table, "one", by, on, of_join_table=True)

    def _add(self, node: Node, name: str, section: ChildSection) -> None:
        """Add a child, which becomes the field `name`."""
        path = f"{node.path}.{key_path((name,))}"
        if not 0 < len(name.encode()) <= _LONGEST_NAME:
            raise ConfigError(f"{path}: a field's name has 1 to {_LONGEST_NAME} bytes; give it another one")
        node.children[name] = self.child(path, section, node)

    def _level_below(self, section: ChildSection, tree: TreeSection, node: Node) -> None:
        """The rows that refer to the node's rows, as a child section would say it."""
        below = section.model_copy(
            update={
                "where": tree.where,
                "by": None if tree.by is None else [[one] for one in tree.by],
                "on": None if tree.on is None else [tree.on],
                "tree": tree.model_copy(update={"depth": tree.depth - 1}),
            }
        )
        self._add(node, tree.name, below)

    # --- how a node joins its parent ----------------------------------------------------------------------

    def _edge(
        self,
        path: str,
        parent: Table,
        table: Table,
        kind: str,
        by: Sequence[str] | None,
        on: Mapping[str, str] | None,
        *,
        of_join_table: bool = False,
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if on is not None:
            return self._columns_by_hand(path, parent, table, on)
        up = self.catalogue.foreign_keys(parent, table)
        down = [] if of_join_table else self.catalogue.foreign_keys(table, parent)
        from_above = [key for key in up if by is None or set(by) == set(key.columns)]
        from_below = [key for key in down if by is None or set(by) == set(key.columns)]
        if kind == "one":
            unique = [key for key in from_below if table.is_unique(key.columns)]
            found = from_above or unique
        else:
            found = from_below
        if len(found) != 1:
            raise ConfigError(f"{path}: {_not_one_key(parent, table, kind, by, found, up, down)}")
        key = found[0]
        return (
            (key.columns, key.referred)
            if key in from_above and kind == "one"
            else (key.referred, key.columns)
        )

    def _columns_by_hand(
        self, path: str, parent: Table, table: Table, on: Mapping[str, str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        for owner, names in ((parent, on.keys()), (table, on.values())):
            for name in names:
                if name not in owner.columns:
                    raise ConfigError(
                        f"{path}.on: {owner.name} has no column {name}; it has {', '.join(owner.columns)}"
                    )
        for here, there in on.items():
            self.expressions.check_join(parent, here, table, there, f"{path}.on")
        return tuple(on.keys()), tuple(on.values())

    def _join(
        self, parent: Node, node: Node, parent_columns: tuple[str, ...], columns: tuple[str, ...]
    ) -> None:
        node.parent, node.parent_columns, node.columns = parent, parent_columns, columns
        node.used |= set(columns)
        parent.used |= set(parent_columns)
        for here, there in zip(parent_columns, columns, strict=True):
            above, below = parent.table.columns[here], node.table.columns[there]
            if above.collation != below.collation and not (above.is_exact and below.is_exact):
                raise ConfigError(
                    f"{node.path}: {parent.table.name}.{here} and {node.table.name}.{there} have different "
                    "collations, by one of which different texts are equal; give them the same one"
                )
        node.key_cols = _key_cols(node)
        node.link = _link_of(node)

    # --- the columns read of a node -----------------------------------------------------------------------

    def _fill(self, node: Node, section: PartSection) -> None:
        if section.where is not None:
            found = self.expressions.condition(node.table, node.alias, section.where, f"{node.path}.where")
            node.condition = f"({found.sql})"
            node.used |= found.columns
        if isinstance(section, ChildSection) and node.shape in {Shape.LIST, Shape.VALUE}:
            self._scalar(node, section)
        for text in section.fields:
            self._field(node, text)
        for name, child in section.children.items():
            self._add(node, name, child)
        _refuse_clashes(node)

    def _field(self, node: Node, text: str) -> None:
        path = f"{node.path}.fields"
        table = node.table
        if text == "*" or text in table.columns:
            for name in table.columns if text == "*" else [text]:
                node.fields.append((name, f"{node.alias}.{quoted(name)}"))
                node.used.add(name)
            return
        found = self.expressions.field(table, node.alias, text, path)
        if found.is_aggregate:
            raise ConfigError(f"{path}: {text!r} is an aggregate; make it the value of a child section")
        node.fields.append((found.name, found.sql))
        node.used |= found.columns

    def _scalar(self, node: Node, section: ChildSection) -> None:
        option, text = ("list", section.elements) if node.shape is Shape.LIST else ("value", section.value)
        assert text is not None
        path = f"{node.path}.{option}"
        found = self.expressions.expression(node.table, node.alias, text, path)
        node.fields.append(("", found.sql))
        node.used |= found.columns
        node.is_aggregate, node.is_array = found.is_aggregate, found.is_array
        if node.is_aggregate and option == "list":
            raise ConfigError(f"{path}: {text!r} is an aggregate, one for all rows; write it as value")
        if node.is_aggregate and (section.order_by or section.limit):
            raise ConfigError(
                f"{path}: {text!r} is one for all rows, so order_by and limit mean nothing; put the order "
                "into the aggregate, as string_agg(name, ',' ORDER BY name)"
            )
        if option == "value" and not node.is_aggregate and section.one is None and section.limit != 1:
            raise ConfigError(
                f"{path}: {text!r} has a value for each of many rows; use an aggregate, limit = 1, or list"
            )

    def _order(self, node: Node, texts: Sequence[str]) -> None:
        """A total order: where equal rows change places, arrays differ without a change."""
        parts = []
        if texts:
            found = self.expressions.order(node.table, node.alias, texts, f"{node.path}.order_by")
            node.used |= found.columns
            parts.append(found.sql)
        if node.table.key:
            parts += [f"{node.alias}.{quoted(name)}" for name in node.table.key]
        else:  # rows that are equal in all that is used give equal documents
            parts += [
                f'{node.alias}.{quoted(name)}::pg_catalog.text COLLATE "C"' for name in sorted(node.used)
            ]
        node.order = ", ".join(parts)


def _shape_of(section: ChildSection) -> Shape:
    if section.value is not None:
        return Shape.VALUE
    if section.elements is not None:
        return Shape.LIST
    if section.flatten:
        return Shape.FLAT
    return Shape.OBJECT if section.one is not None else Shape.ARRAY


def _key_cols(node: Node) -> tuple[str, ...]:
    """The columns by which a row holds all of its document's key of several columns; none: it doesn't.

    A row between that is joined by the columns by which it joins its own parent adds nothing.
    """
    parent, held = node.above, dict(zip(node.parent_columns, node.columns, strict=True))
    while parent.shape is not Shape.ROOT and held.keys() >= set(parent.columns) and not parent.condition:
        pairs = zip(parent.parent_columns, parent.columns, strict=True)
        parent, held = parent.above, {above: held[below] for above, below in pairs}
    root = parent.table
    if parent.shape is not Shape.ROOT or len(root.key) == 1 or not held.keys() >= set(root.key):
        return ()
    names = tuple(held[name] for name in root.key)
    columns = [node.table.columns[name] for name in names]
    return names if are_parts(columns, columns_of(root)) else ()


def _link_of(node: Node) -> int:
    """The place of the link: the root's key if it is there, else the last column of a type that keys have.

    A column that alone is unique, here or in the parent, goes before others. By one column of several the
    touched documents are more, never fewer: by the tenant's they would be all of the tenant.
    """
    parent = node.above
    of = node.table.columns
    allowed = [
        place for place, name in enumerate(node.columns) if of[name].key_type and not of[name].computed_of
    ]
    if not allowed and node.key_cols:
        return 0  # it is followed by all of them
    if not allowed:
        types = ", ".join(f"{name} ({node.table.columns[name].type})" for name in node.columns)
        raise ConfigError(
            f"{node.path}: {node.table.name} joins {parent.table.name} by {types}, but tables can only be "
            "followed by integers, uuids and texts (text, varchar); join them by a column of these types"
        )
    if parent.shape is Shape.ROOT:
        for place in allowed:
            if (node.parent_columns[place],) == parent.table.key:
                return place
    alone = [
        place
        for place in allowed
        if node.table.is_unique((node.columns[place],))
        or parent.table.is_unique((node.parent_columns[place],))
    ]
    return (alone or allowed)[-1]


def _refuse_clashes(node: Node) -> None:
    if node.shape in {Shape.LIST, Shape.VALUE}:
        return
    seen: set[str] = set()
    for name in node.names():
        if name in seen:
            raise ConfigError(
                f"{node.path}: the field {name!r} stands there twice; give one of them another name, as "
                f"'{quoted(name)} AS other'"
            )
        seen.add(name)


def _not_one_key(
    parent: Table,
    table: Table,
    kind: str,
    by: Sequence[str] | None,
    found: Sequence[ForeignKey],
    up: Sequence[ForeignKey],
    down: Sequence[ForeignKey],
) -> str:
    """Why there is not one foreign key to go by, and what to write."""
    candidates = [*up, *down] if kind == "one" else list(down)
    choices = "; ".join(dict.fromkeys(", ".join(key.columns) for key in (found or candidates)))
    between = f"between {parent.name} and {table.name}"
    if len(found) > 1:
        return f"there are {len(found)} foreign keys {between}, by {choices}; choose one with by"
    if kind == "one" and down and not up:
        return (
            f"the foreign key is in {table.name}, by {choices}, which is not unique there, so there may be "
            "many; write many, or make it unique"
        )
    if by is not None and choices:
        return f"there is no foreign key {between} by {', '.join(by)}; choose one of: {choices}"
    if kind == "many" and up:
        return f"the foreign key is in {parent.name}, so there is at most one row of {table.name}; write one"
    on = "on = { column of " + str(parent.name) + " = column of " + str(table.name) + " }"
    return f"there is no foreign key {between}; say {on}"
