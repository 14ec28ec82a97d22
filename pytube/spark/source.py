"""What the formats share: their options, readers and streams, and reading a statement as Arrow.

No option is a secret: plans and the UI show options.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pytube.errors import DatabaseUnavailable, StatementFailed, UsageError
from pytube.spark import queries
from pytube.spark.hosts import Host
from pytube.spark.queries import value

if TYPE_CHECKING:
    import pyarrow as pa

_TIMEOUT = 60.0
_POLL = 0.02
_ASK_HOLDERS_AFTER = 0.5

# --- options ------------------------------------------------------------------------------------------


def host_of(options: Mapping[str, str], bound: Mapping[str, Host]) -> Host:
    """The database that the options name.

    Args:
        options: `host`, the name of a registered database; or `dsn` and `schema`.
        bound: the registered databases.

    Raises:
        UsageError: both options are missing, no database has the name, or the DSN holds a password.
        ConfigError: the DSN is no connection string.
    """
    name, dsn = options.get("host"), options.get("dsn")
    if name is not None:
        if name not in bound:
            known = ", ".join(sorted(bound)) or "none"
            raise UsageError(f"no database {name!r} is registered (there is {known}): pytube.spark.register")
        return bound[name]
    if dsn is None:
        if "default" in bound:
            return bound["default"]
        raise UsageError(
            "which database? Call pytube.spark.register(spark, dsn), or give the option dsn (no password)"
        )
    host = Host(dsn, options.get("schema", "tube"))
    if host.has_password():
        raise UsageError(
            "an option must not hold a password, because plans and the UI show it: use "
            "pytube.spark.register, dsn=env:NAME with the variable on all machines, or a service or "
            "passfile of libpq"
        )
    return host


def required(options: Mapping[str, str], name: str, what: str) -> str:
    """An option that must be given; `what` explains it in the error."""
    given = options.get(name)
    if not given:
        raise UsageError(f"the option {name!r} is missing: {what}")
    return given


def number(options: Mapping[str, str], name: str, default: int) -> int:
    """An option with a number of at least 1."""
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"the option {name!r} is {text!r}; give a number of at least 1")
    return int(text)


def number_or_none(options: Mapping[str, str], name: str) -> int | None:
    """As `number`, for an option that may be missing."""
    return number(options, name, 1) if name in options else None


def flag(options: Mapping[str, str], name: str) -> bool:
    """An option with true or false."""
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise UsageError(f"the option {name!r} is {text!r}; give true or false")
    return text == "true"


def listed(names: str) -> list[str]:
    """The names in an option that joins them by commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


# --- reading ------------------------------------------------------------------------------------------


def read(host: Host, before: Sequence[str], statement: str, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a statement, through ADBC, in a transaction that is rolled back.

    Args:
        host: the database.
        before: settings to make in the transaction.
        statement: the statement.
        schema: the types and names that Spark expects.

    Raises:
        DatabaseUnavailable: the database can't be reached.
        PooledSession: a pooler gives us no session of our own.
        StatementFailed: Postgres refuses the statement. No message holds the password.
    """
    import adbc_driver_postgresql.dbapi
    from adbc_driver_manager import Error
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    host.connect().close()  # ADBC does not tell the process id that shows a pooler
    try:
        session = adbc_driver_postgresql.dbapi.connect(host.conninfo())
    except Error as error:
        raise DatabaseUnavailable(_brief(host, error)) from None
    try:
        with session, session.cursor() as cursor:
            for setting in before:
                cursor.execute(setting)
            cursor.execute(statement)
            for batch in cursor.fetch_record_batch():
                yield _conform(batch, wanted)
            session.rollback()
    except Error as error:
        raise StatementFailed(_brief(host, error)) from None


def _conform(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns with the types and names of `wanted`, which Spark compares exactly."""
    import pyarrow as pa

    columns: list[Any] = []
    for column, field in zip(batch.columns, wanted, strict=True):
        plain: Any = column.storage if isinstance(column, pa.ExtensionArray) else column
        columns.append(plain if plain.type == field.type else plain.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _brief(host: Host, error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{host.name}: {host.redacted(text.split(' Query was:')[0])}"


# --- readers ------------------------------------------------------------------------------------------

BY_INDEX = ("SET LOCAL enable_seqscan = off",)
"""Reads by the index, whatever the statistics of a table say that fills and empties."""


@dataclass(frozen=True, slots=True)
class Piece(InputPartition):
    """What one task reads: a statement, and the settings of its transaction."""

    statement: str
    before: tuple[str, ...] = BY_INDEX


class PieceReader(DataSourceReader):
    """Reads pieces that were found when the read was planned."""

    def __init__(self, host: Host, schema: StructType, pieces: Sequence[Piece]) -> None:
        self._host, self._schema, self._pieces = host, schema, pieces

    def partitions(self) -> list[InputPartition]:
        """The pieces, one a task."""
        return [*self._pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        return _read_piece(self._host, self._schema, partition)


def _read_piece(host: Host, schema: StructType, piece: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(piece, Piece):  # Spark's own, if there is nothing to read
        return iter(())
    return read(host, piece.before, piece.statement, schema)


class Rows(ABC):
    """The rows of a tube or an outbox, each of which has a number. It is pickled."""

    name: str

    @abstractmethod
    def check(self, connection: psycopg.Connection) -> None:
        """Raise if there is nothing of that name."""

    @abstractmethod
    def nth(self, connection: psycopg.Connection, after: int, upto: int, limit: int) -> int:
        """The number of the `limit`th row beyond `after`; `upto` if there are fewer."""

    @abstractmethod
    def pieces(self, connection: psycopg.Connection, after: int, upto: int) -> list[Piece]:
        """The rows between two numbers."""

    def forget(self, connection: psycopg.Connection, upto: int) -> None:  # noqa: B027 # may stay as it is
        """A stream has finished the batch that ends there."""


def settled_reader(host: Host, schema: StructType, rows: Rows) -> PieceReader:
    """A reader of the rows that are settled now."""
    with host.connect() as connection:
        upto = SettledSeq(rows.name).reach(connection)
        return PieceReader(host, schema, rows.pieces(connection, -1, upto))


class SettledStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads rows as they come. Offsets are settled seqs, so no late commit is missed."""

    def __init__(self, host: Host, schema: StructType, rows: Rows, most: int | None) -> None:
        """`most`: rows that a batch may have; None: any number."""
        self._host, self._schema, self._rows, self._most = host, schema, rows, most
        self._settled = SettledSeq(rows.name)
        self._last: int | None = None
        """The end of a stream that reads only what is there when it starts."""
        self._connection: psycopg.Connection | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 # Spark's name
        """The offset before all. Fails here, not at the first row, if it can't be read."""
        self._rows.check(self._session())
        return {"seq": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to the seq that is drawn now, and then end."""
        self._last = self._settled.reach(self._session())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What bounds a batch."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The settled seq, or a lower seq if there is a limit."""
        after = int(start["seq"])
        upto = self._settled.advance(self._session()) if self._last is None else self._last
        upto = max(after, upto)
        if isinstance(limit, ReadMaxRows) and upto > after:
            upto = self._rows.nth(self._session(), after, upto, limit.max_rows)
        return {"seq": upto}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The pieces of a batch."""
        return [*self._rows.pieces(self._session(), int(start["seq"]), int(end["seq"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a piece."""
        return _read_piece(self._host, self._schema, partition)

    def commit(self, end: dict[str, int]) -> None:
        """A batch is finished. Spark calls this with the next one."""
        self._rows.forget(self._session(), int(end["seq"]))

    def stop(self) -> None:
        """End the session."""
        if self._connection is not None:
            self._connection.close()

    def _session(self) -> psycopg.Connection:
        """The session; opened when first needed, because the reader is pickled, and again after a loss."""
        try:
            if self._connection is not None and not self._connection.closed:
                self._connection.execute("SELECT 1")
                return self._connection
        except psycopg.Error:
            self._connection = None
        self._connection = self._host.connect()
        return self._connection


@dataclass(slots=True)
class _Probe:
    seq: int
    xid: str
    begun_at: float
    holders: list[str] | None = None


class SettledSeq:
    """Finds the settled seq of a tube or outbox: all at or below it that will ever exist is visible.

    The steps are those that `tube_settle_seq` describes. A lost session may be replaced at any time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._probe: _Probe | None = None
        self.seq = 0

    def advance(self, connection: psycopg.Connection) -> int:
        """Settle what can be settled now. Returns the newest seq that is known to be settled."""
        if self._probe is None:
            drawn = int(value(connection, queries.SETTLE_SEQ))
            if drawn > self.seq:
                # Read before: a session that drew a seq up to `drawn` has an older transaction id.
                xid = str(value(connection, queries.SETTLE_XID))
                self._probe = _Probe(drawn, xid, time.monotonic())
        if self._probe is not None and self._is_over(connection, self._probe):
            self.seq = max(self.seq, self._probe.seq)
            self._probe = None
        return self.seq

    def reach(self, connection: psycopg.Connection) -> int:
        """Wait until every seq that is drawn by now is settled.

        Raises:
            DatabaseUnavailable: transactions of writers stay open for longer than a minute.
        """
        drawn = int(value(connection, queries.SETTLE_SEQ))
        deadline = time.monotonic() + _TIMEOUT
        while self.advance(connection) < drawn:
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"transactions that may write to {self._name!r} are open for {_TIMEOUT:g} s"
                )
            time.sleep(_POLL)
        return self.seq

    def _is_over(self, connection: psycopg.Connection, probe: _Probe) -> bool:
        """Whether every transaction has ended that may have drawn a seq up to the probe's."""
        if value(connection, queries.SETTLE_DONE, xid=probe.xid):
            return True
        if time.monotonic() - probe.begun_at < _ASK_HOLDERS_AFTER:
            return False
        # The open transaction may belong to another database. Ask for those that have the table open.
        if probe.holders is None:
            probe.holders = list(value(connection, queries.SETTLE_HOLDERS, tube=self._name))
        return bool(value(connection, queries.SETTLE_LEFT, tube=self._name, holders=probe.holders))
