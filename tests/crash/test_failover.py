"""A failover to a streaming standby, under load, with workers whose DSN names both servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.crash.acknowledged import Acknowledged, differences
from tests.crash.fleet import Fleet
from tests.crash.load import KEYS, Load, make_table
from tests.crash.pair import Pair
from tests.crash.test_restored_backup import TOUCH_ALL
from tests.crash.test_servers_restarted import go_on
from tests.helpers import cli


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        make_table(pair.dsn, "items", 4)
        yield pair


@pytest.fixture
def fleet(pair: Pair, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(pair.dsn, tmp_path, comparing=True) as fleet:
        yield fleet


def fail_over(pair: Pair) -> None:
    """As an operator's tools do it."""
    pair.primary.kill()
    pair.standby.promote()


def epochs(fleet: Fleet) -> dict[int, int]:
    """The epoch of each partition."""
    return dict(fleet.query("SELECT partition, epoch FROM tube_leaders('items') WHERE epoch IS NOT NULL"))


def without_trust(fleet: Fleet) -> list[dict[str, Any]]:
    """What worker 1 said of terms that it may not write under any more; the latest last."""
    said = [*fleet.events(1, "trust_lapsed"), *fleet.events(1, "leader_revoked")]
    return sorted(said, key=lambda entry: str(entry["timestamp"]))


def test_a_synchronous_standby_takes_over_and_nothing_is_lost(pair: Pair, fleet: Fleet) -> None:
    pair.standby.make_synchronous()
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    before = epochs(fleet)
    with Acknowledged(fleet.dsn) as writers, Load(fleet.dsn):
        go_on(fleet, "the start")
        fail_over(pair)
        go_on(fleet, "the failover")
    fleet.wait_until_drained()
    doctor = cli.start(
        "doctor", "--json", config=fleet.config, CLIENT_ID="operator", COMPARING_SINK_PATH="x", DSN=fleet.dsn
    )
    said, _ = doctor.communicate(timeout=30)
    levels = {check["subject"]: check["level"] for check in json.loads(said)}
    assert {levels[subject] for subject in ("Postgres", "server", "SQL", "rights", "tube items")} == {"ok"}
    fleet.wait_for_leaders({1, 2})
    after = epochs(fleet)
    assert all(after[partition] > before[partition] for partition in range(4)), (before, after)
    assert fleet.terminate() == [0, 0]
    assert differences(writers.journal, fleet.sink) == []
    verdict = fleet.judge()
    assert verdict.is_good, verdict
    for number in (1, 2):
        assert len(list(fleet.events(number, "database_down"))) == 1, "told once"


def test_a_primary_that_only_reads_any_more_is_left(pair: Pair, fleet: Fleet) -> None:
    """As some tools fence it: its sessions stay open, so nothing but a refusal tells of the failover."""
    pair.standby.make_synchronous()
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        go_on(fleet, "the start")
    with psycopg.connect(pair.dsn_of_primary, autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
    pair.standby.wait_until_caught_up()
    pair.standby.promote()
    fleet.look_anew()
    with Load(fleet.dsn):
        go_on(fleet, "the failover")
    fleet.wait_until_drained()
    fleet.wait_for_leaders({1, 2})
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def test_what_an_asynchronous_standby_lacks_is_made_right_by_touching(pair: Pair, fleet: Fleet) -> None:
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    with Load(fleet.dsn):
        go_on(fleet, "the start")
    fleet.wait_until_drained()
    # Pods that wait at the standby would be delivered again, and heal what this test wants torn.
    pair.standby.wait_until_caught_up()
    pair.standby.cut_off()
    with Load(fleet.dsn):
        go_on(fleet, "the cut")
    fleet.change("UPDATE public.items SET note = 'lost'")
    fleet.wait_until_drained()
    fail_over(pair)
    fleet.wait_for_leaders({1, 2})
    fleet.wait_until_drained()
    assert fleet.query("SELECT count(*) FROM public.items WHERE note = 'lost'") == [(0,)]
    assert not fleet.judge().is_good, "the sink is ahead of the new primary"
    fleet.change(TOUCH_ALL)
    # and the rows that were made, or made again, since the standby was cut off
    fleet.change(f"SELECT public.items_touch(ARRAY(SELECT generate_series(1, {KEYS})))")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0, 0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def test_an_old_primary_with_a_synchronous_standby_proves_nothing_after_the_failover(
    pair: Pair, tmp_path: Path
) -> None:
    """It was not killed, and a worker still talks to it: a split network."""
    pair.standby.make_synchronous()
    zombies = tmp_path / "zombies"
    zombies.mkdir()
    with Fleet(pair.dsn_of_primary, zombies, comparing=True) as zombie:
        zombie.start(1)
        zombie.wait_for_leaders({1})
        zombie.wait_until_drained()
        before = len(without_trust(zombie))  # on a slow machine there may be some
        pair.standby.promote()
        with psycopg.connect(pair.dsn_of_primary, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            zombie.wait_until(
                lambda: {entry["partition"] for entry in without_trust(zombie)[before:]} == set(range(4)),
                "its trust lapses: no renewal is answered",
            )
            lines = zombie.sink_lines()
            connection.execute("UPDATE public.items SET n = n + 1")
        with Fleet(pair.dsn_of_standby, tmp_path, comparing=True) as successor:
            successor.start(2)
            successor.wait_for_leaders({2})
            with Load(successor.dsn):
                go_on(successor, "the take-over")
            successor.change(TOUCH_ALL)  # its sink is a new one, which has nothing of what was before
            successor.wait_until_drained()
            assert successor.terminate() == [0]
            verdict = successor.judge()
            assert verdict.is_good, verdict
        assert zombie.sink_lines() == lines, "it sends nothing"
