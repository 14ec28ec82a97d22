"""Probes: what a test does at two moments of a unit, in the task that writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from unittest import mock

import pyarrow as pa

from pytube.spark import Touched, tasks
from pytube.spark.tasks import UnitPlan, Work, _Unit

Probe = Callable[[str, int], None]
"""Called with `copied`, before the row of the ledger, or `committed`; and the unit."""


def touch(*arguments: Any, probe: Probe, **options: Any) -> Touched:
    """`pytube.spark.touch`, in whose tasks the probe is called."""
    original = tasks.write_units
    module = import_module("pytube.spark.touch")  # its name in the package is the function's
    with mock.patch.object(module, "write_units", lambda plan: _probed(original, plan, probe)):
        done: Touched = module.touch(*arguments, **options)
    return done


def _probed(original: Callable[[UnitPlan], Work], plan: UnitPlan, probe: Probe) -> Work:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        commit = _Unit._commit

        def probing(unit: _Unit) -> None:
            probe("copied", unit.number)
            commit(unit)
            if unit._state == tasks.WRITTEN:
                probe("committed", unit.number)

        with mock.patch.object(_Unit, "_commit", probing):
            yield from original(plan)(batches)

    return work
