"""Probes: what a test does at two moments of a unit, in the task that writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from unittest import mock

import pyarrow as pa

from pytube.spark import Touched, job
from pytube.spark.touch import Plan, Work

MODULE = import_module("pytube.spark.touch")  # its name in the package is the function's

Probe = Callable[[str, int], None]
"""Called with `copied`, before the row of the ledger, or `committed`; and the unit."""


def touch(*arguments: Any, probe: Probe, **options: Any) -> Touched:
    """`pytube.spark.touch`, in whose tasks the probe is called."""
    with mock.patch.object(MODULE, "write_units", lambda plan: _probed(plan, probe)):
        done: Touched = MODULE.touch(*arguments, **options)
    return done


def _probed(plan: Plan, probe: Probe) -> Work:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        record, write, number = job.done, MODULE.write_unit, 0

        def recording(*arguments: Any) -> bool:
            probe("copied", number)
            return record(*arguments)

        def writing(
            plan: Plan, connection: Any, place: int, bucket: int, pieces: Any
        ) -> tuple[str, str | None]:
            nonlocal number
            number = place * plan.buckets + bucket
            outcome: tuple[str, str | None] = write(plan, connection, place, bucket, pieces)
            if outcome[0] == job.WRITTEN:
                probe("committed", number)
            return outcome

        with mock.patch.object(job, "done", recording), mock.patch.object(MODULE, "write_unit", writing):
            yield from MODULE.write_units(plan)(batches)  # which is as it was, in the process of a task

    return work
