"""Documents, declared by tables: `[document.NAME]` and the sections within it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from pytube.config.section import MOST_PARTITIONS, MOST_SHARD, Section, Table

CHILDREN = "child sections"
"""Where the sections of children are put. In the file they stand within their parent's section."""

_NO_TABLE = "is a section of a child"
_MOST_ELEMENTS = 2**31 - 1
"""Of an array."""
_DEEPEST = 20
"""Levels of a tree at most."""


Sql = Annotated[str, Field(min_length=1)]
"""An expression over the columns of the section's table."""


def _texts(value: Any) -> Any:
    """A string, or an array of them."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) and one for one in texts):
        raise ValueError("expected a string or an array of strings")
    return texts


Texts = Annotated[list[str], BeforeValidator(_texts)]


def _by(value: Any) -> Any:
    """Names of columns; of `through` two, each of which may be an array itself."""
    if isinstance(value, list) and any(isinstance(one, list) for one in value):
        return [_texts(one) for one in value]
    return [[text] for text in _texts(value)]


def _on(value: Any) -> Any:
    """Pairs of columns; of `through` two tables of them."""
    tables = value if isinstance(value, list) else [value]
    for one in tables:
        names = [*one.keys(), *one.values()] if isinstance(one, dict) else []
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ValueError(
                'expected columns here and there, as { tenant_id = "tenant_id", id = "owner_id" }'
            )
    return tables


def _short(value: Any) -> Any:
    """A list of one as the thing itself: so it is written."""
    return _short(value[0]) if isinstance(value, list) and len(value) == 1 else value


By = Annotated[
    list[list[str]],
    BeforeValidator(_by),
    PlainSerializer(lambda value: _short([_short(one) for one in value])),
]
On = Annotated[list[dict[str, str]], BeforeValidator(_on), PlainSerializer(_short)]


def _has_nul(value: Any) -> bool:
    """Whether a text within has U+0000: it would end the SQL that it is in, or clash with the placeholder."""
    if isinstance(value, dict):
        return any(map(_has_nul, [*value.keys(), *value.values()]))
    return any(map(_has_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


class TreeSection(Section):
    """`tree = {…}`: rows that refer to rows of the same table, to a depth."""

    by: Texts | None = None
    """Columns of the foreign key from the table to itself."""

    on: Annotated[
        dict[str, str] | None, BeforeValidator(lambda value: None if value is None else _on(value)[0])
    ] = None
    """Without a foreign key: column of the upper row = column of the lower row."""

    name: str = Field(alias="as", min_length=1)
    """Field for the rows below a row."""

    depth: int = Field(ge=1, le=_DEEPEST)
    """Levels, the first included."""

    where: Sql | None = None
    """Condition for rows below the first level."""

    @model_validator(mode="after")
    def _one_way_to_join(self) -> Self:
        if (self.by is None) == (self.on is None):
            raise ValueError(
                "expected by, the columns that refer to the table itself; without a foreign key, on"
            )
        return self


class PartSection(Section):
    """What the sections of a document and of its children have in common."""

    fields: list[Sql] = Field(default_factory=list)
    """As in a SELECT list: columns, `expression AS name`, `*`. Required if there are no children."""

    where: Sql | None = None
    """SQL condition for the rows that count; a root row that fails it has no document."""

    children: dict[str, ChildSection] = Field(default_factory=dict, alias=CHILDREN)
    """By the name of the field that they become, in the file's order."""

    @model_validator(mode="before")
    @classmethod
    def _gather_children(cls, data: Any) -> Any:
        """Sections within the section are children, unless they are the value of an option."""
        if not isinstance(data, dict):
            return data
        if _has_nul(data):
            raise ValueError("has the character U+0000, which Postgres has in no text; take it out")
        children = {key: value for key, value in data.items() if cls._is_child(key, value)}
        rest = {key: value for key, value in data.items() if key not in children}
        return rest | ({CHILDREN: children} if children else {})

    @classmethod
    def _is_child(cls, key: str, value: Any) -> bool:
        if not isinstance(value, dict) or key in {"on", "tree", CHILDREN}:
            return False
        if key == "children" and any(isinstance(one, PartSection) for one in value.values()):
            return False  # in Python, not in a file
        return "one" in value or "many" in value or key not in _options(cls)


class ChildSection(PartSection):
    """`[document.NAME.CHILD]`: rows of another table that belong to a row of the parent's."""

    one: Table | None = None
    """The table, for an object or null. Required: `one` or `many`."""

    many: Table | None = None
    """The table, for an array."""

    by: By | None = None
    """Columns of the foreign key, on whichever side it is; with `through`, two entries of the join table.
    Default: the only foreign key."""

    on: On | None = None
    """Without a foreign key: column of the parent = column of this table; with `through`, an array of two
    such tables."""

    through: Table | None = None
    """The join table."""

    order_by: Texts | None = None
    """Order of the array: one expression or several; the primary key always comes last."""

    limit: int | None = Field(default=None, ge=1, le=_MOST_ELEMENTS)
    """Most elements of the array. Default: all."""

    elements: Sql | None = Field(default=None, alias="list")
    """An expression; the array has its values."""

    value: Sql | None = None
    """An aggregate, or an expression over the only row; the field is its value."""

    flatten: bool = False
    """Fields of the only row become fields of the parent."""

    tree: TreeSection | None = None
    """Rows that refer to rows of the same table."""

    @property
    def table(self) -> str:
        """The table, as it is written."""
        return self.one or self.many or ""

    @model_validator(mode="before")
    @classmethod
    def _names_a_table(cls, data: Any) -> Any:
        """Checked before the keys are: a section that names none is likely a misspelled option."""
        if isinstance(data, dict) and not {"one", "many"} & data.keys():
            close = [key for key in data if difflib.get_close_matches(key, ["one", "many"], n=1)]
            meant = f", not by {close[0]}" if close else ""
            raise ValueError(f"{_NO_TABLE}, which names its table by one or many{meant}")
        if isinstance(data, dict) and {"one", "many"} <= data.keys():
            raise ValueError("one and many can't stand side by side; take one of them out")
        return data

    @model_validator(mode="after")
    def _options_that_fit(self) -> Self:
        if (reason := _misfit(self)) is not None:
            raise ValueError(reason)
        return self


class DocumentSection(PartSection):
    """`[document.NAME]`: the document of a row of one table, with its parts from others."""

    table: Table
    """Root table, as `schema.table`; its primary key names the documents."""

    partitions: int = Field(default=4, ge=1, le=MOST_PARTITIONS)
    """Partitions of the tube."""

    shards: int = Field(default=16, ge=1, le=MOST_SHARD)
    """Shards that the keys are spread over; can't be changed."""

    shard_by: str | None = Field(default=None, min_length=1)
    """Of a primary key of several columns, the one column that decides the shard; can't be changed. Default:
    the whole key."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.fields and not self.children:
            raise ValueError('fields is missing; name the columns that the document has, or "*" for all')
        if self.shards < self.partitions:
            raise ValueError(f"expected at least as many shards as partitions, {self.partitions}")
        return self


def _options(section: type[PartSection]) -> set[str]:
    return {field.alias or name for name, field in section.model_fields.items()} - {CHILDREN}


def _misfit(one: ChildSection) -> str | None:
    """The first conflict of the keys in a section of a child."""
    shapes = {"list": one.elements, "value": one.value, "flatten": one.flatten or None}
    chosen = [name for name, value in shapes.items() if value is not None]
    scalar = next((name for name in chosen if name != "flatten"), None)
    has_fields, is_tree = bool(one.fields or one.children), one.tree is not None
    tables = None if one.on is None else len(one.on)
    is_through = one.through is not None
    conflicts = {
        f"{' and '.join(chosen[:2])} can't stand side by side; take one of them out": len(chosen) > 1,
        f"fields, children and tree can't stand beside {scalar}; take them out": (
            scalar is not None and (has_fields or is_tree)
        ),
        'fields is missing; name the columns, or "*" for all; or write list or value for a scalar': (
            scalar is None and not has_fields
        ),
        "flatten goes with one: an array has no fields that the parent could take": (
            one.flatten and one.one is None
        ),
        "list goes with many; of one row write value": one.elements is not None and one.many is None,
        "limit goes with many; of one there is at most one row, the first by order_by": (
            one.one is not None and one.limit is not None
        ),
        "by and on can't stand side by side: by chooses a foreign key, on stands where there is none": (
            one.by is not None and one.on is not None
        ),
        "with through, by needs two entries: the columns of the join table that refer to the parent, and its "
        "columns that refer to this table": is_through and one.by is not None and len(one.by) != 2,
        "on needs two tables beside through: columns of the parent = of the join table, and columns of the "
        "join table = of this table": is_through and tables not in (None, 2),
        "tree and through can't stand side by side; a query can say it": is_through and is_tree,
        "on is one table of columns; an array of two goes with through": (
            not is_through and tables not in (None, 1)
        ),
    }
    return next((text for text, is_there in conflicts.items() if is_there), None)


def shown_section(section: dict[str, Any]) -> dict[str, Any]:
    """A dumped section as it stands in the file: children within their parents, nothing that is not there."""
    children = section.pop(CHILDREN)
    plain = {
        key: value
        for key, value in section.items()
        if value is not None and value != [] and value is not False
    }
    if isinstance(plain.get("tree"), dict):
        plain["tree"] = {key: value for key, value in plain["tree"].items() if value is not None}
    return plain | {name: shown_section(child) for name, child in children.items()}


def likely_option(path: tuple[str | int, ...]) -> str | None:
    """The option that a section within a child's may be, misspelled; `path` as pydantic has it."""
    is_within_child = path.count(CHILDREN) > 1
    close = difflib.get_close_matches(str(path[-1]), ["on", "tree"], n=1) if is_within_child else []
    return close[0] if close else None


def is_without_table(message: str) -> bool:
    """Whether a fault is that a section names no table, and so may be none of a child."""
    return message.startswith(_NO_TABLE)


def without_layout(section: DocumentSection) -> Mapping[str, Any]:
    """The declaration of the document, in a form that depends on nothing else: for digests."""
    return shown_section(section.model_dump(by_alias=True, exclude={"partitions", "shards", "shard_by"}))
