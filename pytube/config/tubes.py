"""How tubes are served: `[tube.NAME]` and the sections within it."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pytube.config.attachments import MOST_PARTITIONS, AttachmentConfig, DeclaringSection, Table, attachments
from pytube.config.names import table_name
from pytube.config.section import OR_OFF, FromEnvironment, Section
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


_TABLES = "schema.table"


class EnrichConfig(DocumentConfig):
    """`[tube.NAME.enrich]`: how keys become documents where their root table has no separate section."""

    tables: dict[str, DocumentConfig] = Field(default_factory=dict, alias=_TABLES)
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
            {_TABLES: tables} if tables else {}
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


_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(value: Any) -> Any:
    """Seconds of a length of time such as `10m`; anything else as it is."""
    if not isinstance(value, str) or (isinstance(value, FromEnvironment) and value.isdecimal()):
        return value
    found = re.fullmatch(r"(\d{1,6})(s|min|m|h|d)", value)
    if found is None:
        raise ValueError('expected a length of time, e.g. "90s", "10m", "1h" or "1d"')
    return int(found[1]) * _UNITS[found[2]]


class VerifyConfig(Section):
    """`[tube.NAME.verify]`: the samples that a worker compares now and then."""

    every: Annotated[float, BeforeValidator(_seconds)] = Field(ge=1, allow_inf_nan=False)
    """Pause between two samples: seconds, or a text such as `"90s"`, `"10m"`, `"1h"`, `"1d"`."""

    sample: int = Field(default=1000, ge=1, le=100_000)
    """Keys of each root table."""


def _target(value: str) -> str:
    if re.match(TARGET, value) is None:
        raise ValueError('expected "module:function", e.g. "shop.documents:slim"')
    return value


class TubeConfig(DeclaringSection):
    """`[tube.NAME]`: how a worker serves one tube, and what the database is to have of it."""

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

    @model_validator(mode="after")
    def _tables_that_fit(self) -> Self:
        attachments(self.tables)
        return self
