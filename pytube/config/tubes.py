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
    request_timeout: float = Field(default=10.0, gt=0)
    """Seconds after which a send that was not answered counts as unknown."""

    batch_documents: int = Field(default=500, ge=1)
    """At most, as `batch_bytes`, `sends` and `requests` are: a slow sink is sent less at a time."""

    batch_bytes: int = Field(default=4 * 1024 * 1024, ge=1)
    sends: int = Field(default=4, ge=1)
    """Batches that one partition has under way at the same time."""

    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Documents a second at most, of all partitions of the tube in this process together; None: no limit."""

    requests: int | None = Field(default=None, ge=1)
    """Batches that all partitions of the tube in this process have under way at the same time; None: no limit
    beyond that of `sends`."""

    ramp: int = Field(default=10, ge=1)
    """Batches under way at a time at first, and after an outage of the sink; more as it answers fast."""

    parts: Annotated[list[str] | int | None, BeforeValidator(_checked_parts)] = None
    """The parts of each document, by names or a number. Each part is a separate document at the sink. None:
    documents are not split."""

    options: dict[str, Any] = Field(default_factory=dict, repr=False)

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
    query: str | None = Field(default=None, min_length=1)
    columns: list[Annotated[str, Field(min_length=1)]] | None = Field(default=None, min_length=1)
    """Of the row, by their exact names and in this order; None: all of them."""

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
    """Root tables with a separate section, by name. In the file their sections stand within this one."""

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
    """Nothing is inserted while so many backfill pods wait in the tube."""

    replica_lag: Annotated[float | None, *OR_OFF] = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Nothing is inserted while a replica is so many seconds behind, by its own account."""

    replica_behind: Annotated[int | None, *OR_OFF] = Field(default=256, ge=1)
    """Nothing is inserted while a replica is more than so many megabytes of WAL behind."""

    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Rows a second at most."""

    chunk: int = Field(default=40, ge=1, le=10_000)
    """Pods, of 250 ids each, in one transaction."""


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
    """Seconds from the end of a sample to the beginning of the next one."""

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
    """How many workers can share it at most; None: as many as it has, and 1 for a new one."""

    key_type: Literal["bigint", "uuid", "text"] | None = None
    """Of its ids, for good; None: as it is, and bigint for a new one."""

    predicate: str | None = Field(default=None, min_length=1)
    """Which rows of its tables belong to it; None: all."""

    tables: dict[Table, AttachmentConfig] = Field(default_factory=dict)
    """The tables that it follows, by name, in the order in which they are attached."""

    sink: SinkConfig
    enrich: EnrichConfig = EnrichConfig()
    transforms: list[Annotated[str, AfterValidator(_target)]] = Field(default_factory=list)
    """Functions between enrich and send, as `module:function`, in order."""

    backfill: BackfillConfig = BackfillConfig()
    verify: VerifyConfig | None = None
    """None: no samples are compared."""

    keys_in_flight: int = Field(default=50_000, ge=1)
    """Keys that one partition holds at most, whatever the backlog."""

    mark_limit: int = Field(default=1000, ge=1)
    """Pods that one mark takes at most."""

    latency: float = Field(default=0.02, ge=0, le=60)
    """Seconds by which a change may wait for others, to be sent together with them, while changes come in a
    stream. 0: each is sent as soon as possible, whatever that costs."""

    attempts: int = Field(default=5, ge=1)
    """Failures after which a document is parked."""

    on_poison: Literal["park", "stop"] = "park"
    """The fate of a document that can't be delivered: it is parked and the rest continues, or the whole tube
    is stopped until it is resumed."""

    park_limit: Annotated[int | None, *OR_OFF] = Field(default=10_000, ge=0)
    """Parked keys of the tube, beyond which it is stopped."""

    park_documents: bool = False
    """Whether a parked key keeps the document that was sent."""

    retry_on_touch: bool = True
    """Whether a touch of a parked key tries it again; else only an operator does."""

    backfill_share: float = Field(default=0.2, gt=0, le=1)
    """The most that backfill gets of the sends while other touches wait."""

    topic: str | None = Field(default=None, min_length=1)
    group: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _tables_that_fit(self) -> Self:
        attachments(self.tables)
        return self
