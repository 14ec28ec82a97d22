"""The state of the fleet in the terms of Prometheus, as the database knows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import psycopg

from pytube.backfill.admin import ACTIVE, Backfills
from pytube.db.errors import translated
from pytube.errors import UsageError, how_to_install
from pytube.health.fleet import Count, HostSample, LastSample, Partition
from pytube.health.watcher import Reader
from pytube.tubes.queries import within

if TYPE_CHECKING:  # from the extra `metrics`
    from prometheus_client import Metric

_Value = Callable[[Partition], float | None]
_Samples = Sequence[tuple[Sequence[str], float | None]]
_Of = Callable[["Measured"], _Samples]

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
class Measured:
    """The measurements of one host; of a host that is down nothing."""

    sample: HostSample
    writers: Sequence[tuple[str, float | None, int]] = ()
    """By role, of its open transactions that write: the age of the oldest, and how many hide their age."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the table of each tube and outbox, with its indexes."""
    backfills: Sequence[Mapping[str, Any]] = ()
    """The running ones of all tubes, as `Backfills` gives them."""

    def of(self, tube: str | None) -> Measured:
        """The part for one tube or outbox, and for none; None: all."""
        return self if tube is None else replace(self, sample=self.sample.only(lambda one: one.name == tube))

    @property
    def tubes(self) -> list[str]:
        """By name, without outboxes."""
        return sorted({one.name for one in self.sample.partitions if one.kind == "tube"})


def measure(connection: psycopg.Connection, schema: str, host: str | None = None) -> Measured:
    """Measure a host over a session with it."""
    with translated():
        writers = connection.execute(_WRITERS).fetchall()
        sizes = connection.execute(within(_SIZES, schema), {"schema": schema}).fetchall()
        backfills = [row for row in Backfills(connection, schema).all() if row["state"] in ACTIVE]
        return Measured(Reader(schema, host).read(connection), writers, dict(sizes), backfills)


def exposition(hosts: Sequence[Measured]) -> str:
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
    """A collector of measurements. The label `host` names the host, where there are several."""

    def __init__(self, hosts: Sequence[Measured]) -> None:
        self._hosts = hosts

    def collect(self) -> Iterator[Metric]:
        """All metrics. A metric without a value for a partition leaves that partition out."""
        from prometheus_client.core import GaugeMetricFamily

        named = any(host.sample.host is not None for host in self._hosts)
        for name, text, labels, samples in METRICS:
            all_labels = ("host", *labels) if named else labels
            family = GaugeMetricFamily(f"pytube_fleet_{name}", text, labels=all_labels)
            for host in self._hosts:
                for values, value in samples(host):
                    if value is not None:
                        of_host = () if host.sample.host is None else (host.sample.host,)
                        family.add_metric((*of_host, *values), float(value))
            yield family


# --- the metrics -----------------------------------------------------------------------------------


def _number(count: Count | None) -> int | None:
    return None if count is None else count.number


def _if_led(value: _Value) -> _Value:
    """Without a leader it is unknown whether the sink of a partition is up."""
    return lambda one: value(one) if one.is_led else None


def _if(kind: str, value: _Value) -> _Value:
    return lambda one: value(one) if one.kind == kind else None


_OF_PARTITIONS: Mapping[str, tuple[str, _Value]] = {
    "partition_led": ("1 while a worker leads the partition.", lambda one: one.is_led),
    "partition_lost": ("1 while its leader has stopped renewing its term.", lambda one: one.state == "lost"),
    "leader_age_seconds": ("Age of the term; absent without a term.", lambda one: one.leads_for),
    "renewal_age_seconds": (
        "Time since the last renewal; absent without a term.",
        lambda one: one.renewed_ago,
    ),
    "sink_up": (
        "0 while the sink accepts nothing; absent without a leader.",
        _if_led(lambda one: one.sink_down is None),
    ),
    "source_up": (
        "0 while rows can't be read; absent without a leader.",
        _if("tube", _if_led(lambda one: one.source_down is None)),
    ),
    "sink_down_seconds": (
        "How long the sink has accepted nothing, or 0; absent without a leader.",
        _if_led(lambda one: one.sink_down_for or 0.0),
    ),
    "source_down_seconds": (
        "How long rows could not be read, or 0; absent without a leader.",
        _if("tube", _if_led(lambda one: one.source_down_for or 0.0)),
    ),
    "failing_terms": (
        "Consecutive terms that ended by the same failure, or 0.",
        lambda one: one.failing_terms or 0,
    ),
    "parked_keys": (
        "Parked keys or records; absent if the role may not see them.",
        lambda one: _number(one.parked),
    ),
    "partition_paused": (
        "1 while the partition is paused, or a worker has stopped the tube.",
        lambda one: one.paused is not None,
    ),
    "partition_stopped": (
        "1 while a worker has stopped the tube: a document can't be delivered, or too many keys are parked.",
        _if("tube", lambda one: one.paused_kind in ("poison", "park_limit")),
    ),
    "outbox_records": (
        "Records in the outbox: exact below 1000, an estimate above; absent if the role may not read them.",
        _if("outbox", lambda one: _number(one.waiting)),
    ),
    "outbox_topics_resting": (
        "Topics that accept no records from the outbox.",
        _if("outbox", lambda one: len(one.resting)),
    ),
}
"""With the labels `tube` and `partition`."""

_OF_CLASSES: Mapping[str, tuple[str, Mapping[str, _Value]]] = {
    "pods": (
        "Pods in the tube: exact below 1000, an estimate above.",
        {
            "incremental": _if("tube", lambda one: _number(one.waiting)),
            "backfill": lambda one: _number(one.backfill),
            "control": lambda one: _number(one.control),
        },
    ),
    "lag_seconds": (
        "Age of the oldest pod or record, or 0.",
        {
            "incremental": lambda one: one.lag or 0.0,
            "backfill": _if("tube", lambda one: one.backfill_lag or 0.0),
        },
    ),
}
"""The same, with the class of the pods."""


def _unverified(host: Measured, cause: str) -> _Samples:
    found = {one.tube: one for one in host.sample.unverified if one.cause == cause}
    names = {one.name for one in host.sample.partitions} if cause == "source" else host.tubes
    return [((name,), 0 if name not in found else 1 + found[name].is_certain) for name in sorted(names)]


def _last_sample(value: Callable[[LastSample], float]) -> _Of:
    return lambda host: [((one.tube,), value(one)) for one in host.sample.samples]


def _sizes(host: Measured) -> _Samples:
    names = sorted({one.name for one in host.sample.partitions})
    return [((name,), host.sizes.get(name)) for name in names]


def _emptied(host: Measured) -> _Samples:
    tubes = {one.name: one.sink_emptied_for for one in host.sample.partitions if one.kind == "tube"}
    return [((tube,), since is not None) for tube, since in tubes.items()]


_OF_TUBES: Mapping[str, tuple[str, _Of]] = {
    "bytes": ("Size of the table with its indexes. Space is reused later, not freed.", _sizes),
    "source_changed": (
        "1 if delivered commits may be gone, 2 if some are, until the copy is verified or acknowledged.",
        lambda host: _unverified(host, "source"),
    ),
    "copy_differs": (
        "2 after a scheduled sample found differing keys, until the copy is verified; else 0.",
        lambda host: _unverified(host, "sample"),
    ),
    "sample_checked": (
        "Keys that the last scheduled sample compared; absent before the first.",
        _last_sample(lambda one: one.checked),
    ),
    "sample_differing": (
        "Its differing keys, without parked keys.",
        _last_sample(lambda one: one.differing),
    ),
    "sample_age_seconds": ("Seconds since the sample ended.", _last_sample(lambda one: one.ago)),
    "sink_emptied": (
        "1 from when the sink was found to have lost its documents until it is filled again.",
        _emptied,
    ),
}
"""With the label `tube`."""


def _backfill_rows(host: Measured) -> _Samples:
    names = {"total": "rows_total", "inserted": "rows_done", "delivered": "rows_delivered"}
    return [
        ((row["tube"], row["tbl"], what), row[name])
        for row in host.backfills
        if row["tube"] in host.tubes
        for what, name in names.items()
    ]


def _unreachable(host: Measured) -> _Samples:
    return list(Counter((one.tube, one.use, one.bootstrap_servers) for one in host.sample.kafka).items())


_OTHERS: Sequence[tuple[str, str, Sequence[str], _Of]] = [
    (
        "backfill_rows",
        "Rows of a running backfill: `total`, `inserted` into the tube, or `delivered` or parked, about.",
        ("tube", "table", "what"),
        _backfill_rows,
    ),
    (
        "transaction_age_seconds",
        "Age of the role's oldest open transaction that writes; it pins the settled seq.",
        ("role",),
        lambda host: [((role,), age) for role, age, _ in host.writers],
    ),
    (
        "transactions_hidden",
        "Writing transactions whose age this role may not see; grant it `pg_read_all_stats`.",
        (),
        lambda host: [] if host.sample.error else [((), sum(hidden for _, _, hidden in host.writers))],
    ),
    (
        "kafka_unreachable_workers",
        "Workers that can't reach a Kafka cluster needed for `election` or `delivery`; absent while all can.",
        ("tube", "use", "bootstrap_servers"),
        _unreachable,
    ),
    (
        "postgres_up",
        "1 if the host could be read; 0 only with several hosts.",
        (),
        lambda host: [((), host.sample.error is None)],
    ),
]


def _each(**values: _Value) -> _Of:
    """One of each partition, or of each class of its pods."""
    return lambda host: [
        ((one.name, str(one.partition), *filter(None, [label])), value(one))
        for one in host.sample.partitions
        for label, value in values.items()
    ]


METRICS: Sequence[tuple[str, str, Sequence[str], _Of]] = [
    *((name, text, ("tube", "partition"), _each(**{"": of})) for name, (text, of) in _OF_PARTITIONS.items()),
    *((name, text, ("tube", "partition", "class"), _each(**of)) for name, (text, of) in _OF_CLASSES.items()),
    *((name, text, ("tube",), of) for name, (text, of) in _OF_TUBES.items()),
    *_OTHERS,
]
"""Name without `pytube_fleet_`, text, labels without that of the host, and the samples of one host."""
