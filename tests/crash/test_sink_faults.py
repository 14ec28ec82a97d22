"""A sink that answers late, twice, out of order or for half a batch, and workers that die meanwhile."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.crash.conftest import MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.journal_sink import is_rejected
from tests.crash.judge import source
from tests.crash.load import Load
from tests.crash.store import ALL, Fault, Store
from tests.crash.store_client import PORT

REQUEST_TIMEOUT = 1.5
TOO_LATE = 2.5
"""Seconds: the worker has given up by then."""

JUST_IN_TIME = 1.2

SINK = """
type = "callable"
target = "tests.crash.store_client:{function}"
compares = {compares}
batch_documents = 100

# Of documents that are sent alone, some meet one fault after the other: only what is refused is to be parked.
[tube.items]
attempts = 100
"""


def make(make_fleet: MakeFleet, store: Store, *, compares: bool, kafka: str | None = None) -> Fleet:
    """Workers that write to the store."""
    options = SINK.format(
        function="send_in_a_task" if compares else "send_in_a_thread", compares=str(compares).lower()
    )
    return make_fleet(
        kafka=kafka,
        session_timeout=5.0,
        receive_deadline=1.5,
        request_timeout=REQUEST_TIMEOUT,
        sink_options=options,
        environment={PORT: str(store.port)},
    )


def check(fleet: Fleet, store: Store, *, by_token: bool) -> None:
    """After the load: the store equals the source, and parked is what it refuses of that."""
    store.heal()
    fleet.wait_until_drained()
    assert set(fleet.terminate()) == {0}
    fleet.wait_until(lambda: store.is_quiet, "nothing is under way to the store")
    rows = source(fleet.dsn)
    refused = {key for key, row in rows.items() if is_rejected(key, row)}
    assert _without(store.rows(by_token=by_token), refused) == _without(rows, refused)
    parked = {int(key) for (key,) in fleet.query("SELECT id FROM tube_parked WHERE tube = 'items'")}
    assert parked == refused == {key for (_, key), was in store.rejected.items() if was}
    assert refused, "the load has made rows that are refused"


def _without(rows: dict[int, Any], keys: set[int]) -> dict[int, Any]:
    return {key: row for key, row in rows.items() if key not in keys}


def one_dies_and_one_is_stopped(make_fleet: MakeFleet, kafka: str | None, faults: tuple[Fault, ...]) -> None:
    """Three workers and a store that compares; what was sent takes effect though the sender is gone."""
    with Store(faults, delay=TOO_LATE) as store:
        fleet = make(make_fleet, store, compares=True, kafka=kafka)
        fleet.start(1, 2, 3)
        fleet.wait_for_leaders({1, 2, 3})
        with Load(fleet.dsn):
            fleet.wait_until(lambda: set(faults) <= store.struck.keys(), "each fault has struck")
            fleet.kill(1)
            fleet.signal(2, signal.SIGSTOP)
            fleet.wait_for_leaders({3})
            fleet.signal(2, signal.SIGCONT)
            fleet.wait_for_leaders({2, 3})
        check(fleet, store, by_token=True)


def test_whatever_the_sink_does_the_one_that_compares_is_equal(make_fleet: MakeFleet) -> None:
    one_dies_and_one_is_stopped(make_fleet, None, ALL)


@pytest.mark.soak
@pytest.mark.parametrize("fault", ALL)
@pytest.mark.parametrize("election", ["lease", "neli"])
def test_each_fault_alone(
    make_fleet: MakeFleet, request: pytest.FixtureRequest, election: str, fault: Fault
) -> None:
    kafka = request.getfixturevalue("kafka_real").bootstrap if election == "neli" else None
    one_dies_and_one_is_stopped(make_fleet, kafka, (fault,))


def test_a_late_write_at_a_sink_that_does_not_compare(make_fleet: MakeFleet) -> None:
    """Its keys wait until it is over, so the last write wins though nothing is compared.

    The worker does not die meanwhile, and ends in order: then the next one waits for it.
    """
    faults = tuple(fault for fault in ALL if fault is not Fault.TWICE)
    with Store(faults, delay=TOO_LATE) as store:
        fleet = make(make_fleet, store, compares=False)
        fleet.start(1)
        fleet.wait_for_leaders({1})
        with Load(fleet.dsn):
            fleet.wait_until(lambda: set(faults) <= store.struck.keys(), "each fault has struck")
            assert fleet.terminate(1) == [0]
            store.clients.clear()
            fleet.start(2)
            fleet.wait_until(lambda: "worker-2" in store.clients, "the next one writes")
        check(fleet, store, by_token=False)


def test_a_write_of_a_dead_worker_that_comes_within_the_request_timeout(make_fleet: MakeFleet) -> None:
    """The next one does not begin before, so it does not matter whether the sink compares."""
    with Store((Fault.LATE,), rate=0.5, delay=JUST_IN_TIME) as store:
        fleet = make(make_fleet, store, compares=False)
        fleet.start(1, 2)
        fleet.wait_for_leaders({1, 2})
        with Load(fleet.dsn):
            fleet.wait_until(lambda: store.struck.get(Fault.LATE, 0) > 5, "writes come late")
            fleet.kill(1)
            fleet.wait_for_leaders({2})
        check(fleet, store, by_token=False)
