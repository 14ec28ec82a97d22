"""The format `tube`: pods to read, once or as a stream, and ids to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import psycopg
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import ArrayType, StringType, StructType

from pytube.db.errors import translated
from pytube.errors import UsageError
from pytube.spark import queries
from pytube.spark.hosts import Host
from pytube.spark.sources import options as given
from pytube.spark.sources import pods
from pytube.spark.sources.arrow import read
from pytube.spark.sources.settled import SettledSeq
from pytube.spark.sources.writer import TubeWriter, WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

_WHICH = "the tube, or with write several, joined by commas"
_SETTLE_TIMEOUT = 60.0


class TubeSource(DataSource):
    """`spark.read`, `readStream` and `write` of tubes."""

    hosts: ClassVar[Mapping[str, Host]] = {}

    @classmethod
    def name(cls) -> str:
        """How it is called."""
        return "tube"

    def schema(self) -> str:
        """Of what is read; the tube is asked for the type of its keys."""
        with self._host().connect() as connection:
            return pods.schema_of(connection, self._tube())

    def reader(self, schema: StructType) -> PodReader:
        """Reads what is settled by now."""
        return PodReader(self._host(), self._tube(), schema)

    def streamReader(self, schema: StructType) -> PodStream:  # noqa: N802 # Spark's name
        """Reads on and on."""
        return PodStream(
            self._host(),
            self._tube(),
            schema,
            purge=given.flag(self.options, "purge"),
            max_pods=given.number(self.options, "max_pods", 1) if "max_pods" in self.options else None,
        )

    def writer(self, schema: StructType, overwrite: bool) -> TubeWriter:
        """Writes ids."""
        if overwrite:
            raise UsageError("a tube can't be overwritten; write with mode('append')")
        names = given.listed({"tube": given.required(self.options, "tube", _WHICH)}, "tube")
        return TubeWriter(self._host(), schema, WriteOptions.of(tuple(names), self.options))

    def _host(self) -> Host:
        return given.host_of(self.options, self.hosts)

    def _tube(self) -> str:
        return given.required(self.options, "tube", _WHICH)


class PodReader(DataSourceReader):
    """The pods that are there when it is planned."""

    def __init__(self, host: Host, tube: str, schema: StructType) -> None:
        self._host, self._tube, self._schema = host, tube, schema

    def partitions(self) -> list[InputPartition]:
        """One a partition of the tube, up to the settled seq."""
        with self._host.connect() as connection:
            upto = SettledSeq(self._tube).reach(connection, _SETTLE_TIMEOUT)
            return [*pods.spans(connection, self._tube, -1, upto)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The pods of one."""
        return _read(self._host, self._tube, self._schema, partition)


class PodStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Pods as they come. An offset is a settled seq, so that none is missed that commits late."""

    def __init__(
        self, host: Host, tube: str, schema: StructType, *, purge: bool, max_pods: int | None
    ) -> None:
        self._host, self._tube, self._schema = host, tube, schema
        self._purge, self._max_pods = purge, max_pods
        self._settled = SettledSeq(tube)
        self._last: int | None = None
        """Where a stream ends that reads only what is there when it starts."""
        self._connection: psycopg.Connection | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first pod. A tube that can't be read is refused here, not when its first pod comes."""
        pods.partitions_of(self._session(), self._tube)
        return {"seq": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is drawn by now, and then end."""
        self._last = self._settled.reach(self._session(), _SETTLE_TIMEOUT)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As the option says."""
        return ReadAllAvailable() if self._max_pods is None else ReadMaxRows(self._max_pods)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The settled seq, or less where there is a limit."""
        after = int(start["seq"])
        upto = self._settled.advance(self._session()) if self._last is None else self._last
        upto = max(after, upto)
        if isinstance(limit, ReadMaxRows) and upto > after:
            upto = pods.nth_seq(self._session(), self._host, self._tube, after, upto, limit.max_rows)
        return {"seq": upto}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One a partition of the tube."""
        return [*pods.spans(self._session(), self._tube, int(start["seq"]), int(end["seq"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The pods of one."""
        return _read(self._host, self._tube, self._schema, partition)

    def commit(self, end: dict[str, int]) -> None:
        """What is done with goes, if that was asked for. Spark calls this with the batch after."""
        if self._purge:
            with translated():
                self._session().execute(queries.STREAM_PURGE, {"tube": self._tube, "seq": end["seq"]})

    def stop(self) -> None:
        """End the session."""
        if self._connection is not None:
            self._connection.close()

    def _session(self) -> psycopg.Connection:
        """Made when first needed, and again when it was lost: the reader itself is pickled for the tasks."""
        try:
            if self._connection is not None and not self._connection.closed:
                self._connection.execute("SELECT 1")
                return self._connection
        except psycopg.Error:
            self._connection = None
        self._connection = self._host.connect()
        return self._connection


def _read(host: Host, tube: str, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, pods.Span):  # Spark's own, where there is nothing to read
        return iter(())
    kind = schema["ids"].dataType
    is_text = isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
    return read(host, [pods.reading(host, tube, partition, "text" if is_text else "bigint")], schema)
