"""The doctor's look at delivery: leaders, what is paused, down, parked or slow, and copies to be verified."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import psycopg

from pytube.clock import for_people
from pytube.config import Config
from pytube.counts import say_count
from pytube.health.findings import Check, is_expected, judged, ok, warn
from pytube.health.fleet import LastSample, Partition, Verification
from pytube.health.troubles import oldest, troubles
from pytube.health.watcher import Reader
from pytube.tubes.queries import within

_NOT_LOOKED_AT: Final = {
    "leaders": "were not looked at",
    "emptied sinks": "were not looked for",
    "parked": "documents were not looked at",
    "copies": "it was not looked at which are to be verified",
}
"""What a role that may not look is told, by subject."""
_LATE = 3
"""A sample is late when so many times the interval has passed, and `_PATIENCE`, since the last one."""
_PATIENCE = 60.0

# When the last term of each partition ended.
_ENDED: Final = """
    SELECT t.tube, t.partition, extract(epoch FROM clock_timestamp() - max(t.ended_at))::float8
    FROM unnest(%(tubes)s::text[]) AS f (tube) CROSS JOIN LATERAL {s}.tube_terms(f.tube) AS t
    GROUP BY t.tube, t.partition
"""


def check_delivery(connection: psycopg.Connection, schema: str, config: Config) -> Iterator[Check]:
    """What keeps documents and records from being delivered, and copies that are not what they should be.

    Workers with another configuration may serve tubes that this one does not name: they get warnings only.
    """
    try:
        found = Reader(schema).read(connection)
        waited = _waited(connection, schema, found.partitions)
    except psycopg.errors.InsufficientPrivilege:
        for subject, finding in _NOT_LOOKED_AT.items():
            yield warn(subject, finding, "see above: rights")
        return
    needed = replace(found, kafka=[one for one in found.kafka if is_expected(config, one.tube)])
    wrong = troubles([needed], waited)
    for one in wrong:
        check = Check(one.subject, one.level, one.finding, one.remedy)
        yield check if one.name is None else judged(check, config, one.name)
    if not wrong:
        yield ok("leaders", _well(found.partitions))
    if any(row.parked is None for row in found.partitions if row.kind == "tube"):
        yield warn("parked", _NOT_LOOKED_AT["parked"], "see above: rights")
    if "what is to be verified" in found.unseen:
        yield warn("copies", _NOT_LOOKED_AT["copies"], "see above: rights")
    else:
        yield from _check_copies(found.verification, config)


def _waited(
    connection: psycopg.Connection, schema: str, rows: Sequence[Partition]
) -> dict[tuple[str, int], float]:
    """For how many seconds something has waited in partitions while nobody led them."""
    free = [row for row in rows if row.leader is None and oldest(row) is not None]
    tubes = sorted({row.name for row in free})
    ended = connection.execute(within(_ENDED, schema), {"tubes": tubes}).fetchall() if tubes else ()
    since = {(tube, partition): seconds for tube, partition, seconds in ended if seconds is not None}
    return {
        (row.name, row.partition): min(oldest(row) or 0.0, since.get((row.name, row.partition), math.inf))
        for row in free
    }


def _well(rows: Sequence[Partition]) -> str:
    if not rows:
        return "there is no tube and no outbox yet"
    return (
        f"{say_count(len(rows), 'partition')} looked at: led, not paused or stopped, and no sink or source "
        "is reported down; `pytube status` shows how far behind they are"
    )


def _check_copies(found: Verification, config: Config) -> Iterator[Check]:
    if not found.unverified:
        yield ok("copies", "nothing is known that asks for a verification")
    samples = {one.tube: one for one in found.samples}
    for name, tube in config.tubes.items():
        if tube.verify is not None:
            yield _check_sample(name, tube.verify.every, samples.get(name))


def _check_sample(tube: str, every: float, sample: LastSample | None) -> Check:
    subject = f"sample of {tube}"
    remedy = "samples wait while the tube is behind; else see sample_not_compared in the workers' logs"
    if sample is None:
        return warn(subject, "none was compared yet", remedy)
    if sample.ago > _LATE * every + _PATIENCE:
        return warn(subject, f"{sample}; one is due every {for_people(every)}", remedy)
    return ok(subject, str(sample))
