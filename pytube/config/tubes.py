"""`[tube.NAME]` and the sections within it: how tubes are served, and what the database has of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pytube.clock import length_of
from pytube.config.names import TableName, table_name
from pytube.config.section import (
    MOST_PARTITIONS,
    MOST_SHARD,
    OR_OFF,
    DeclaringSection,
    FromEnvironment,
    Section,
    Table,
)
from pytube.keys import MOST_COLUMNS
from pytube.targets import TARGET

_PART = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_MOST_PARTS = 1000
"""As many keys as a sink is asked for at once when it is read."""


def _checked_parts(value: Any) -> Any:
    """What `parts` may be. Checked before its types are, whose errors would be one for each of them."""
    if isinstance(value, FromEnvironment) and value.isdecimal():
        value = int(value)
    if value is None:
        return None
    if type(value) is int:
        if not 1 <= value <= _MOST_PARTS:
            raise ValueError(f"expected 1 to {_MOST_PARTS} parts, got {value}")
    elif not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("expected a list of names, or a whole number of parts")
    elif not 1 <= len(value) <= _MOST_PARTS:
        raise ValueError(f"expected 1 to {_MOST_PARTS} parts, got {len(value)}")
    elif not all(map(_PART.fullmatch, value)):
        raise ValueError('expected names of at most 63 letters, digits, "_", "-" and "."')
    elif len(set(value)) < len(value):
        raise ValueError("a name stands there twice; take one of them out")
    return value


class SinkConfig(Section):
    """`[tube.NAME.sink]`: where documents go. Keys that are not listed here are the sink's own."""

    type: str = Field(min_length=1)
    """`jsonl`, `callable`, `kafka`, `opensearch`, `postgres`, `redis`, `webhook`, an installed sink, or your
    class as `module:Class`."""

    request_timeout: float = Field(default=10.0, gt=0)
    """Seconds without an answer, after which a send counts as unknown, and the rows are read and sent
    again."""

    batch_documents: int = Field(default=500, ge=1)
    """Most documents in a batch; a slow sink gets fewer. A split document counts as all its `parts`, also for
    `rate`."""

    batch_bytes: int = Field(default=4 * 1024 * 1024, ge=1)
    """Most bytes in a batch; a larger document goes alone."""

    sends: int = Field(default=4, ge=1)
    """Batches that one partition has in flight at the same time."""

    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Most documents per second, of all partitions of the tube in this process. Default: no limit."""

    requests: int | None = Field(default=None, ge=1)
    """Most batches in flight, of all partitions of the tube in this process. Default: no limit beyond
    `sends`."""

    ramp: int = Field(default=10, ge=1)
    """Batches in flight at the start and after an outage, of all partitions of the tube in this process.
    Grows while the sink answers fast."""

    parts: Annotated[list[str] | int | None, BeforeValidator(_checked_parts)] = None
    """Split each document: a list of up to 1000 names such as `["head", "body"]`, or a number of parts. Each
    part is a document at the sink."""

    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """The sink's own keys, which may also stand in this section."""

    @property
    def writes(self) -> int:
        """Documents at the sink that each document of the tube is."""
        if self.parts is None:
            return 1
        return self.parts if isinstance(self.parts, int) else len(self.parts)

    @model_validator(mode="before")
    @classmethod
    def _gather_options(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        own = {k: v for k, v in data.items() if k in cls.model_fields}
        rest = {k: v for k, v in data.items() if k not in cls.model_fields}
        given = own.get("options", {})
        if rest and isinstance(given, dict):
            own["options"] = {**given, **rest}
        return own


class DocumentConfig(Section):
    """`[tube.NAME.enrich."schema.table"]`: how keys of one root table become documents."""

    mode: Literal["row", "query", "none"] = "row"
    """`row`: the root table's row as JSON; `query`: the result of the query; `none`: `null` for each key."""

    query: str | None = Field(default=None, min_length=1)
    """For the mode `query`: one SELECT with `%(ids)s`, and `%(shard)s` if you like."""

    columns: list[Annotated[str, Field(min_length=1)]] | None = Field(default=None, min_length=1)
    """For the mode `row`: the columns of the document, by their exact names. Default: all."""

    @model_validator(mode="after")
    def _query_with_its_mode(self) -> Self:
        if (self.mode == "query") != (self.query is not None):
            raise ValueError('a query goes with mode = "query", and the mode needs one')
        return self

    @model_validator(mode="after")
    def _columns_of_a_row(self) -> Self:
        if self.columns is None:
            return self
        if self.mode != "row":
            raise ValueError('columns go with mode = "row"; a query names its own')
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("columns has a name twice; take one of them out")
        return self


TABLES = "schema.table"
"""Where the sections of tables are put. In the file they stand within `[tube.NAME.enrich]`."""


class EnrichConfig(DocumentConfig):
    """`[tube.NAME.enrich]`: how keys become documents where their root table has no separate section."""

    tables: dict[str, DocumentConfig] = Field(default_factory=dict, alias=TABLES)
    """A section for each root table that is read in another way."""

    @model_validator(mode="before")
    @classmethod
    def _gather_tables(cls, data: Any) -> Any:
        """Sections within the section are tables'."""
        if not isinstance(data, dict):
            return data
        known = cls.model_fields
        tables = {k: v for k, v in data.items() if "." in k or (isinstance(v, dict) and k not in known)}
        return {key: value for key, value in data.items() if key not in tables} | (
            {TABLES: tables} if tables else {}
        )

    @model_validator(mode="after")
    def _one_section_for_each_table(self) -> Self:
        names = [table_name(name) for name in self.tables]
        if len(set(names)) < len(names):
            raise ValueError("two of its sections are for the same table")
        return self

    def of_table(self, schema: str, table: str) -> DocumentConfig | None:
        """The section of a table; None when it has none."""
        for name, section in self.tables.items():
            if table_name(name) == (schema, table):
                return section
        return None


class DeclaredEnrich(EnrichConfig):
    """A declared document as a worker uses it: a query that was made from it. No file has this section."""

    digest: str
    """Of the document; see `pytube.documents.model.Document.digest`."""


class BackfillConfig(Section):
    """`[tube.NAME.backfill]`: what backfills of one tube slow themselves for."""

    backlog: int = Field(default=2000, ge=1)
    """Pause while this many backfill pods wait in the tube."""

    replica_lag: Annotated[float | None, *OR_OFF] = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Pause while a replica lags by more than this many seconds."""

    replica_behind: Annotated[int | None, *OR_OFF] = Field(default=256, ge=1)
    """Pause while a replica is more than this many megabytes of WAL behind."""

    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Most rows per second. Default: no limit."""

    chunk: int = Field(default=40, ge=1, le=10_000)
    """Pods, of 250 ids each, in one transaction; fewer if `rate` is low."""


def _seconds(value: Any) -> Any:
    """Seconds of a length of time such as `10m`; anything else as it is."""
    if not isinstance(value, str) or (isinstance(value, FromEnvironment) and value.isdecimal()):
        return value
    try:
        return length_of(value).total_seconds()
    except ValueError:
        raise ValueError('expected a length of time, e.g. "90s", "10m", "1h" or "1d"') from None


class VerifyConfig(Section):
    """`[tube.NAME.verify]`: the samples that a worker compares now and then."""

    every: Annotated[float, BeforeValidator(_seconds)] = Field(ge=1, allow_inf_nan=False)
    """Pause between two samples: seconds, or a text such as `"90s"`, `"10m"`, `"1h"`, `"1d"`."""

    sample: int = Field(default=1000, ge=1, le=100_000)
    """Keys of each root table."""


# --- what the database is to have -----------------------------------------------------------------

_KEY = f"expected the name of a column, or a list of 2 to {MOST_COLUMNS} columns"


def _checked_key(value: object) -> object:
    """A column, or several; checked before its types are, whose errors would be one for each of them."""
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError(_KEY)
    if isinstance(value, list) and not 2 <= len(value) <= MOST_COLUMNS:
        raise ValueError(f"{_KEY}, not {len(value)}")
    if len({*names}) < len(names):
        raise ValueError(f"a column stands twice in it; {_KEY}")
    return value


class AttachmentConfig(Section):
    """`[tube.NAME.tables."schema.table"]`: how the tube follows a table."""

    key: Annotated[str | list[str] | None, BeforeValidator(_checked_key)] = None
    """Column of the ids, or a list of 2 to 8 columns; for a related table, the columns with the root table's
    ids. Default for a root table: unchanged; if new, `id` if it is a key, else the primary key of one
    column."""

    shard_by: str | None = Field(default=None, min_length=1)
    """The one of several key columns that decides the shard. Default: as for the shard's root table, else the
    whole key."""

    shard: int | None = Field(default=None, ge=0, le=MOST_SHARD)
    """The shard, or the first of several. Default: the number that the schema's name ends in, else 0."""

    shards: int | None = Field(default=None, ge=1, le=MOST_SHARD)
    """Number of shards that the ids are spread over. Default: as many as the shard's root table has, else
    1."""

    columns: list[Annotated[str, Field(min_length=1)]] | None = Field(default=None, min_length=1)
    """An UPDATE that changes none of these makes no touch. Default: each UPDATE makes one."""

    replica: bool = False
    """Also capture rows that logical replication writes here."""

    @model_validator(mode="after")
    def _shard_by_of_key(self) -> Self:
        if self.shard_by is None:
            return self
        if not isinstance(self.key, list):
            raise ValueError(  # noqa: TRY004 # pydantic's way
                "shard_by chooses one column of a key of several; name them by key, as a list, or take "
                "shard_by out"
            )
        if self.shard_by not in self.key:
            raise ValueError(
                f"shard_by is {self.shard_by}, which the key does not have, so an id would not decide its "
                f"shard; write one of: {', '.join(self.key)}"
            )
        return self

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key; none: the file leaves it out."""
        if isinstance(self.key, list):
            return tuple(self.key)
        return () if self.key is None else (self.key,)


@dataclass(frozen=True, slots=True)
class Attached:
    """How a tube follows a table, or is to follow it."""

    table: TableName
    key: tuple[str, ...]
    """The columns that hold its ids; none at all: the file leaves them out."""
    shard: int = 0
    shards: int = 1
    columns: frozenset[str] = frozenset()
    """An UPDATE that changes none of these makes no touch; none: each one does."""
    replica: bool = False
    root: bool = True
    """Whether its ids are the documents' ids; else they are ids of another table in the same shards."""
    shard_by: str | None = None
    """The one column of a key of several that decides the shard; None: the whole key."""
    made: bool = False
    """Whether it was attached because a file declares it."""

    @property
    def shard_place(self) -> int | None:
        """Which part of the key alone decides its shard, from 0; None: all of them."""
        return None if self.shard_by is None else self.key.index(self.shard_by)

    @property
    def end(self) -> int:
        """The first shard behind its own."""
        return self.shard + self.shards

    @property
    def range(self) -> str:
        """Its shards, for people."""
        return f"shard {self.shard}" if self.shards == 1 else f"shards {self.shard} to {self.end - 1}"

    def same_shards(self, other: Attached) -> bool:
        """Whether one is related to the other."""
        return (self.shard, self.shards) == (other.shard, other.shards)

    def overlaps(self, other: Attached) -> bool:
        """Whether the two have a shard in common."""
        return self.shard < other.end and other.shard < self.end


def attachments(tables: Mapping[str, AttachmentConfig]) -> tuple[Attached, ...]:
    """The tables of a tube, in the order in which they are attached, with what the file leaves out.

    Raises:
        ValueError: two sections are for one table; or its shards are partly another one's; or it is related
            to another one, and its section does not say by which column.
    """
    found: list[Attached] = []
    for written, section in tables.items():
        table = table_name(written)
        if any(one.table == table for one in found):
            raise ValueError(f"two sections are for {table}; take one of them out")
        number = re.search(r"[0-9]+$", table.schema)
        shard = section.shard if section.shard is not None else int(number[0]) if number else 0
        root = next((one for one in found if one.shard == shard), None)
        new = Attached(
            table,
            section.key_columns,
            shard,
            section.shards or (1 if root is None else root.shards),
            frozenset(section.columns or ()),
            section.replica,
            root is None,
            section.shard_by if section.shard_by or root is None else _shard_by(section.key_columns, root),
        )
        _check_shards(new, found, written)
        found.append(new)
    return tuple(found)


def _shard_by(key: tuple[str, ...], root: Attached) -> str | None:
    """The column of a related table that decides the shard, as that of its root table does."""
    return None if root.shard_place is None or len(key) != len(root.key) else key[root.shard_place]


def _check_shards(new: Attached, found: Sequence[Attached], written: str) -> None:
    if new.end - 1 > MOST_SHARD:
        raise ValueError(f"the shards of {written} are more than there are: {MOST_SHARD} is the last one")
    for other in filter(new.overlaps, found):
        if not new.same_shards(other):
            raise ValueError(
                f"{written} has {new.range}, overlapping {other.range} of {other.table}; give it the same "
                f"shards if it holds ids of {other.table}, or else separate shards"
            )
        if not new.key:
            raise ValueError(
                f"{written} has the {new.range} of {other.table}; name the column that holds ids of "
                f"{other.table} in key, or give it a separate shard"
            )


def _target(value: str) -> str:
    if re.match(TARGET, value) is None:
        raise ValueError('expected "module:function", e.g. "shop.documents:slim"')
    return value


class TubeDeclaration(DeclaringSection):
    """What the database is to have of a tube."""

    DECLARING: ClassVar[tuple[str, ...]] = ("partitions", "key_type", "predicate", "tables")

    partitions: int | None = Field(default=None, ge=1, le=MOST_PARTITIONS)
    """Most workers that can share the tube. Default: 1 for a new tube, else unchanged."""

    key_type: Literal["bigint", "uuid", "text"] | None = None
    """Type of the ids; can't be changed. `bigint` includes smaller integers. Default for a new tube:
    bigint."""

    predicate: str | None = Field(default=None, min_length=1)
    """SQL condition for the rows that belong to the tube. Default: all rows."""

    tables: dict[Table, AttachmentConfig] = Field(default_factory=dict)
    """A section for each table that the tube follows, in the order in which they are attached."""

    @model_validator(mode="after")
    def _tables_that_fit(self) -> Self:
        attachments(self.tables)
        return self


class TubeConfig(TubeDeclaration):
    """`[tube.NAME]`: how a worker serves one tube, and what the database is to have of it."""

    sink: SinkConfig
    """Where documents go."""

    enrich: EnrichConfig = EnrichConfig()
    """How keys become documents."""

    transforms: list[Annotated[str, AfterValidator(_target)]] = Field(default_factory=list)
    """Functions that change, skip, or delete documents before they are sent, as `"module:function"`, in
    order."""

    backfill: BackfillConfig = BackfillConfig()
    """What backfills pause for."""

    verify: VerifyConfig | None = None
    """Scheduled samples. Default: none."""

    keys_in_flight: int = Field(default=50_000, ge=1)
    """Most keys that one partition holds, whatever the backlog: the bound on memory."""

    mark_limit: int = Field(default=1000, ge=1)
    """Most pods that one mark takes."""

    latency: float = Field(default=0.02, ge=0, le=60)
    """Seconds that a change in a stream may wait for others, to share a read and a send. `0`: never, at
    several times the CPU."""

    attempts: int = Field(default=5, ge=1)
    """Failures of a document sent alone, after which it is parked; counted through restarts and
    take-overs."""

    on_poison: Literal["park", "stop"] = "park"
    """A document can't be delivered: `park` parks it and continues; `stop` stops the whole tube until `pytube
    resume`."""

    park_limit: Annotated[int | None, *OR_OFF] = Field(default=10_000, ge=0)
    """Parked keys of the tube, beyond which it is stopped instead of parking more."""

    park_documents: bool = False
    """A parked key keeps the document that was sent, up to 1 MiB; only `tube_admin` may read it."""

    retry_on_touch: bool = True
    """A touch of a parked key tries it again. `false`: only `pytube park retry` does."""

    backfill_share: float = Field(default=0.2, gt=0, le=1)
    """Share of sends that backfill gets while other touches wait."""

    topic: str | None = Field(default=None, min_length=1)
    """Name of the leader topic; not with several hosts. Default: made of the installation and the tube."""

    group: str | None = Field(default=None, min_length=1)
    """Name of the consumer group; not with several hosts. Default: as the topic."""
