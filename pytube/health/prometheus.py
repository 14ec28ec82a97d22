"""The state of the fleet in the terms of Prometheus, as the database knows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import psycopg

from pytube.db.errors import translated
from pytube.errors import UsageError, how_to_install
from pytube.health.status import PartitionStatus
from pytube.outbox.admin import OutboxPartition
from pytube.tubes.queries import within

if TYPE_CHECKING:  # from the extra `metrics`
    from prometheus_client import Metric

_Samples = Sequence[tuple[Sequence[str], float | None]]
_PARTITION = ("tube", "partition")
_CLASS = ("tube", "partition", "class")

# Transactions that write hold back the settled seq. Prepared ones do, too. Of other roles' sessions a role
# without pg_read_all_stats sees no age.
_WRITERS = """
    SELECT w.role, max(w.age), count(*) FILTER (WHERE w.age IS NULL)
    FROM (
        SELECT a.usename::text AS role, extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS age
        FROM pg_catalog.pg_stat_activity AS a
        WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL
        UNION ALL
        SELECT p.owner::text, extract(epoch FROM clock_timestamp() - p.prepared)::float8
        FROM pg_catalog.pg_prepared_xacts AS p
        WHERE p.database = current_database()
    ) AS w
    WHERE w.role IS NOT NULL
    GROUP BY w.role
    ORDER BY w.role
"""


_SIZES = """
    SELECT c.relname, pg_catalog.pg_total_relation_size(c.oid)
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname IN (SELECT l.tube FROM {s}.tube_list() AS l)
    UNION ALL
    SELECT o.outbox, pg_catalog.pg_total_relation_size(c.oid)
    FROM {s}.outbox_list() AS o JOIN pg_catalog.pg_class AS c ON c.oid = o.tbl -- an adopted one may be gone
"""


@dataclass(frozen=True, slots=True)
class Writers:
    """The open transactions of one role that write."""

    role: str
    age: float | None
    """Seconds since the oldest began; None when no age may be seen."""
    hidden: int
    """How many of them have an age that may not be seen."""


def read_writers(connection: psycopg.Connection) -> list[Writers]:
    """The open transactions of this database that write, by role."""
    with translated():
        return [Writers(*row) for row in connection.execute(_WRITERS).fetchall()]


def read_sizes(connection: psycopg.Connection, schema: str) -> dict[str, int]:
    """Bytes of the table of each tube and outbox, with its indexes."""
    with translated():
        rows = connection.execute(within(_SIZES, schema), {"schema": schema}).fetchall()
    return {str(tube): int(size) for tube, size in rows}


@dataclass(frozen=True, slots=True)
class HostReading:
    """What was read of one host; nothing when it is down."""

    host: str | None
    """None for the only one, which has no name."""
    rows: Sequence[PartitionStatus] = ()
    outboxes: Sequence[OutboxPartition] = ()
    writers: Sequence[Writers] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of tubes and outboxes; those that have no rows here are left out."""
    is_up: bool = True


def exposition(hosts: Sequence[HostReading]) -> str:
    """The text format of Prometheus.

    Raises:
        UsageError: the package that writes it is not installed.
    """
    try:
        from prometheus_client import generate_latest
    except ImportError as error:
        raise UsageError(
            f"--prometheus needs the package prometheus_client: {how_to_install('metrics')}"
        ) from error
    return generate_latest(_Fleet(hosts)).decode()


class _Fleet:
    """A collector of what was read. The label `host` names the host, where there are several."""

    def __init__(self, hosts: Sequence[HostReading]) -> None:
        self._hosts = hosts

    def collect(self) -> Iterator[Metric]:
        """All metrics. One without a value for a partition leaves that partition out."""
        for name, text, value in _OF_PARTITION:
            yield self._gauge(
                name, text, _PARTITION, partial(_of_partitions, value, _OF_OUTBOX.get(name, _unknown))
            )
        for name, text, classes in _OF_CLASS:
            of_outbox = _OF_OUTBOX_CLASS.get(name, {})
            yield self._gauge(name, text, _CLASS, partial(_of_classes, classes, of_outbox))
        yield self._gauge(
            "outbox_records",
            "Records in the outbox; exact below 1000, an estimate above.",
            _PARTITION,
            lambda host: [
                (_key_of_outbox(row), None if row.waiting is None else _count(row.waiting))
                for row in host.outboxes
            ],
        )
        yield self._gauge(
            "bytes", "Size of the table of the tube or outbox with its indexes.", ("tube",), _sizes
        )
        yield self._gauge(
            "transaction_age_seconds",
            "Age of the oldest open transaction of a role that writes: what pins the settled seq.",
            ("role",),
            lambda host: [((one.role,), one.age) for one in host.writers],
        )
        yield self._gauge(
            "transactions_hidden",
            "Open transactions that write, and whose age this role may not see.",
            (),
            lambda host: [((), sum(one.hidden for one in host.writers))] if host.is_up else [],
        )
        yield self._gauge(
            "postgres_up", "Whether the host could be read.", (), lambda host: [((), host.is_up)]
        )

    def _gauge(
        self, name: str, text: str, labels: Sequence[str], samples: Callable[[HostReading], _Samples]
    ) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        named = any(host.host is not None for host in self._hosts)
        family = GaugeMetricFamily(
            f"pytube_fleet_{name}", text, labels=("host", *labels) if named else labels
        )
        for host in self._hosts:
            for values, value in samples(host):
                if value is not None:
                    family.add_metric(values if host.host is None else (host.host, *values), float(value))
        return family


def _of_partitions(
    value: Callable[[PartitionStatus], float | None],
    of_outbox: Callable[[OutboxPartition], float | None],
    host: HostReading,
) -> _Samples:
    return [
        *((_key(row), value(row)) for row in host.rows),
        *((_key_of_outbox(row), of_outbox(row)) for row in host.outboxes),
    ]


def _of_classes(
    classes: Mapping[str, Callable[[PartitionStatus], float | None]],
    of_outbox: Mapping[str, Callable[[OutboxPartition], float | None]],
    host: HostReading,
) -> _Samples:
    return [
        *(((*_key(row), label), of(row)) for row in host.rows for label, of in classes.items()),
        *(
            ((*_key_of_outbox(row), label), of(row))
            for row in host.outboxes
            for label, of in of_outbox.items()
        ),
    ]


def _sizes(host: HostReading) -> _Samples:
    names = sorted({row.tube for row in host.rows} | {row.outbox for row in host.outboxes})
    return [((name,), host.sizes.get(name)) for name in names]


def _is_led(row: PartitionStatus | OutboxPartition) -> bool:
    return row.state not in ("free", "lost")


def _if_led(row: PartitionStatus | OutboxPartition, value: float) -> float | None:
    """Nobody knows of a partition without a leader whether its sink is up."""
    return value if _is_led(row) else None


_OF_PARTITION: Sequence[tuple[str, str, Callable[[PartitionStatus], float | None]]] = [
    ("partition_led", "Whether a worker leads the partition.", _is_led),
    ("partition_lost", "Whether the leader renews its term no more.", lambda row: row.state == "lost"),
    ("leader_age_seconds", "Seconds since the term began.", lambda row: row.leads_for),
    ("renewal_age_seconds", "Seconds since the term was renewed.", lambda row: row.renewed_ago),
    ("sink_up", "Whether the sink takes documents.", lambda row: _if_led(row, row.sink_down is None)),
    ("source_up", "Whether rows can be read.", lambda row: _if_led(row, row.source_down is None)),
    ("parked_keys", "Keys set aside.", lambda row: row.parked),
    ("partition_paused", "Whether the partition is paused, or stopped.", lambda row: row.paused is not None),
    (
        "partition_stopped",
        "Whether a worker has stopped the tube: a document can't be delivered, or too many keys are parked.",
        lambda row: row.paused_kind in ("poison", "park_limit"),
    ),
]
_OF_OUTBOX: Mapping[str, Callable[[OutboxPartition], float | None]] = {
    "partition_led": _is_led,
    "partition_lost": lambda row: row.state == "lost",
    "leader_age_seconds": lambda row: row.leads_for,
    "renewal_age_seconds": lambda row: row.renewed_ago,
    "sink_up": lambda row: _if_led(row, row.sink_down is None),
    "parked_keys": lambda row: _count(row.parked),
    "partition_paused": lambda row: row.paused is not None,
}
"""Those of partitions that outboxes have, too: so one alert is for both."""
_OF_OUTBOX_CLASS: Mapping[str, Mapping[str, Callable[[OutboxPartition], float | None]]] = {
    "lag_seconds": {"incremental": lambda row: row.lag or 0.0}
}
_OF_CLASS: Sequence[tuple[str, str, dict[str, Callable[[PartitionStatus], float | None]]]] = [
    (
        "pods",
        "Pods in the tube; exact below 1000, an estimate above.",
        {
            "incremental": lambda row: _count(row.waiting),
            "backfill": lambda row: _count(row.backfill),
            "control": lambda row: sum(_count(part) for part in row.control.split()),
        },
    ),
    (
        "lag_seconds",
        "Age of the oldest pod in the tube, or record in the outbox; 0 when there is none.",
        {"incremental": lambda row: row.lag or 0.0, "backfill": lambda row: row.backfill_lag or 0.0},
    ),
]


def _count(text: str) -> int:
    """The number in `12`, `~12000`, `1000+` or `type:12`."""
    found = re.search(r"(\d+)\+?$", text)
    assert found is not None
    return int(found[1])


def _key(row: PartitionStatus) -> tuple[str, str]:
    return row.tube, str(row.partition)


def _key_of_outbox(row: OutboxPartition) -> tuple[str, str]:
    return row.outbox, str(row.partition)


def _unknown(_: OutboxPartition) -> None:
    """What outboxes do not have."""
