"""Postgres or the broker goes away under load and comes back: workers go on by themselves."""

from __future__ import annotations

import pytest

from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.postgres import Postgres
from tests.crash.conftest import MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.load import Load


def go_on(fleet: Fleet, what: str) -> None:
    """Documents arrive again."""
    before = fleet.sink_lines()
    fleet.wait_until(lambda: fleet.sink_lines() > before + 100, f"documents arrive after {what}")


def test_postgres_killed_and_restarted(make_fleet: MakeFleet, postgres: Postgres) -> None:
    fleet = make_fleet()
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        go_on(fleet, "the start")
        postgres.kill()
        postgres.start()
        go_on(fleet, "the kill")
        postgres.stop()
        postgres.start()
        go_on(fleet, "the restart")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict
    for number in (1, 2):
        downs = list(fleet.events(number, "database_down"))
        assert 1 <= len(downs) <= 4, f"told once per outage, not per second: {downs}"


@pytest.mark.soak
def test_the_broker_killed_and_restarted(make_fleet: MakeFleet, kafka_real: RealKafka) -> None:
    """The sink is a file: it needs no broker, and neither do terms, which Postgres renews.

    `make test` has a way to the broker that is cut, in test_cut_off.py: terms last, and documents arrive.
    A broker that is killed, and comes again, is in test_outbox_servers.py.
    """
    fleet = make_fleet(kafka=kafka_real.bootstrap)
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        go_on(fleet, "the start")
        ends = ("leader_revoked", "leader_fenced", "trust_lapsed")
        before = {event: sum(len(list(fleet.events(number, event))) for number in (1, 2)) for event in ends}
        leaders = fleet.leaders()
        kafka_real.kill()
        try:
            go_on(fleet, "the kill")
            fleet.wait_until(
                lambda: all(any(fleet.events(number, "group_lost")) for number in (1, 2)),
                "the group has lost both",
            )
            go_on(fleet, "the group has lost both")
            go_on(fleet, "still no broker")
            after = {
                event: sum(len(list(fleet.events(number, event))) for number in (1, 2)) for event in ends
            }
            assert after == before
            assert fleet.leaders() == leaders
        finally:
            kafka_real.start()
        fleet.start(3)
        fleet.wait_for_leaders({1, 2, 3})
        go_on(fleet, "the broker is back, and the group has a third member")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict
    assert verdict.older_term_after_newer == 0, verdict
