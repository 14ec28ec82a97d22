"""A source that lost commits which the copy has: `status` tells within 30 s, and its remedy helps."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.embedded.postgres import Postgres
from tests.crash.fleet import Fleet
from tests.crash.load import make_table
from tests.crash.pair import Pair
from tests.crash.test_restored_backup import dump, restore
from tests.helpers import cli
from tests.helpers.capture import open_session
from tests.helpers.database import TestServer

LOST = 100
"""Statements that are lost: more than the 32 seqs that a standby has in advance."""
LOST_ROWS = [f"INSERT INTO public.items VALUES ({5000 + number}, 1, 'lost')" for number in range(LOST)]
SINK = """
type = "postgres"
dsn = "{dsn}"
table = "copy"
create = true
"""


@pytest.fixture(params=[18, pytest.param("system", marks=pytest.mark.older_server)])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with Pair(request.param) as pair:
        make_table(pair.dsn, "items", 4)
        yield pair


@pytest.fixture
def copy(crash_server: TestServer) -> Iterator[str]:
    """Where the copy is: another server than the one that fails."""
    with crash_server.database(installed=False) as dsn:
        yield dsn


@pytest.fixture
def fleet(pair: Pair, copy: str, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(pair.dsn, tmp_path, sink_options=SINK.format(dsn=copy)) as fleet:
        fleet.start(1, 2)
        fleet.wait_for_leaders({1, 2})
        fleet.wait_until_drained()
        yield fleet


def run(fleet: Fleet, *arguments: str) -> tuple[int, str]:
    """A command as an operator runs it; its exit code, and what it printed."""
    process = cli.start(*arguments, config=fleet.config, CLIENT_ID="operator", DSN=fleet.dsn)
    out, err = process.communicate(timeout=60)
    return process.returncode, out + err


def unverified(fleet: Fleet) -> list[dict[str, Any]]:
    """What `status --json` says that is to be verified."""
    code, out = run(fleet, "status", "--json")
    if code:
        return []
    rows: list[dict[str, Any]] = json.loads(out)
    return [one for row in rows if row["partition"] == 0 for one in row["unverified"]]


def wait_for_finding(fleet: Fleet, *, is_certain: bool) -> dict[str, Any]:
    fleet.wait_until(
        lambda: any(one["is_certain"] is is_certain for one in unverified(fleet)), "status tells"
    )
    (found,) = unverified(fleet)
    assert found["cause"] == "source"
    return found


def verify_to_the_end(fleet: Fleet, *, differs: bool) -> None:
    """As the remedy says."""
    if differs:
        code, said = run(fleet, "verify", "--tube", "items", "--repair")
        assert code == 1, said
        assert unverified(fleet) != [], "a repair is not the end"
        code, said = run(fleet, "wait", "--tube", "items")
        assert code == 0, said
    code, said = run(fleet, "verify", "--tube", "items")
    assert code == 0, said
    assert unverified(fleet) == []
    assert "to be verified" not in run(fleet, "status")[1]
    audit = json.loads(run(fleet, "audit", "--tube", "items", "--json")[1])
    assert audit[0]["action"] == "verify"


def assert_equal(fleet: Fleet, copy: str) -> None:
    """Without any code of `verify`."""
    rows = fleet.query("SELECT id, n, note FROM public.items ORDER BY id")
    with psycopg.connect(copy) as connection:
        there = connection.execute(
            "SELECT (doc ->> 'id')::bigint, (doc ->> 'n')::bigint, doc ->> 'note' FROM copy"
            " WHERE doc IS NOT NULL ORDER BY 1"
        ).fetchall()
    assert there == rows


def differing(fleet: Fleet, copy: str) -> bool:
    try:
        assert_equal(fleet, copy)
    except AssertionError:
        return True
    return False


def told(fleet: Fleet) -> list[str]:
    """The reasons in the logs of the workers."""
    return [entry["reason"] for number in fleet.processes for entry in fleet.events(number, "source_changed")]


def test_an_asynchronous_standby_that_lost_commits(pair: Pair, fleet: Fleet, copy: str) -> None:
    assert unverified(fleet) == []
    pair.standby.wait_until_caught_up()
    pair.standby.cut_off()
    fleet.change(*LOST_ROWS)
    fleet.change("UPDATE public.items SET note = 'lost' WHERE id <= 100")
    fleet.wait_until_drained()
    pair.primary.kill()
    pair.standby.promote()
    found = wait_for_finding(fleet, is_certain=True)
    assert "timeline 2, before 1" in found["detail"]
    assert "tube_seq is at " in found["detail"]
    assert told(fleet), "in a log, too"
    code, said = run(fleet, "doctor")
    assert code == 1
    assert "fail copy of items: the source lost commits" in said
    fleet.wait_for_leaders({1, 2})
    fleet.wait_until_drained()
    assert differing(fleet, copy), "the copy has what the source lost"
    verify_to_the_end(fleet, differs=True)
    assert_equal(fleet, copy)
    assert fleet.terminate() == [0, 0]


def test_a_planned_switchover_may_be_one(pair: Pair, fleet: Fleet, copy: str) -> None:
    """Nothing is lost, and nobody can know it; so it is no more than a warning, which a look ends."""
    pair.standby.wait_until_caught_up()
    pair.primary.stop()  # which sends all to the standby first
    pair.standby.promote()
    found = wait_for_finding(fleet, is_certain=False)
    assert found["detail"] == "timeline 2, before 1"
    code, said = run(fleet, "status")
    assert code == 0
    assert "items: the source was replaced or restored (timeline 2, before 1" in said
    assert "verify now: pytube verify items" in said
    fleet.wait_for_leaders({1, 2})
    assert len(told(fleet)) == 1, "told by one of them"
    verify_to_the_end(fleet, differs=False)
    assert_equal(fleet, copy)
    assert fleet.terminate() == [0, 0]


@pytest.fixture
def source() -> Iterator[TestServer]:
    """A server whose data are put back."""
    server = TestServer(18)
    try:
        yield server
    finally:
        server.close()


def put_back(source: TestServer, earlier: Path) -> None:
    """Have the server begin again with its data of before."""
    data = source.postgres.directory / "data"
    source.postgres.stop()
    shutil.rmtree(data)
    subprocess.run(["cp", "-a", earlier, data], check=True)
    source.postgres.start()


def copied(source: TestServer, folder: Path) -> Path:
    """A copy of its data, as of a snapshot of the disks."""
    source.postgres.stop()
    subprocess.run(["cp", "-a", source.postgres.directory / "data", folder / "earlier"], check=True)
    source.postgres.start()
    return folder / "earlier"


@pytest.mark.parametrize("passes", [False, True], ids=["behind", "passed"])
def test_data_put_back_while_no_worker_ran(
    source: TestServer, copy: str, tmp_path: Path, *, passes: bool
) -> None:
    """No timeline and no identifier tells of it: what was noted at the sink does, wherever `tube_seq` is."""
    with source.database(installed=True) as dsn:
        make_table(dsn, "items", 4)
        with Fleet(dsn, tmp_path, sink_options=SINK.format(dsn=copy)) as fleet:
            fleet.start(1)
            fleet.wait_for_leaders({1})
            fleet.wait_until_drained()
            fleet.wait_until(lambda: fleet.query("SELECT seen FROM tube_sink") == [(True,)], "it has a mark")
            assert fleet.terminate() == [0]
            earlier, noted = copied(source, tmp_path), note(copy)
            fleet.start(1)
            fleet.wait_for_leaders({1})
            fleet.change(*LOST_ROWS)
            fleet.wait_until_drained()
            assert unverified(fleet) == [], "a start of the server is no loss"
            fleet.wait_until(lambda: note(copy) not in {None, noted}, "it left a note")
            assert fleet.terminate() == [0]
            lost_at = last_seq(fleet)
            put_back(source, earlier)
            if passes:
                fleet.change(*(f"UPDATE public.items SET n = n + 1 WHERE id = {n}" for n in range(2 * LOST)))
            assert (last_seq(fleet) > lost_at) is passes
            fleet.start(1)
            found = wait_for_finding(fleet, is_certain=True)
            assert "the note at the sink of items is of a commit" in found["detail"]
            assert ("tube_seq is at " in found["detail"]) is not passes
            assert len(told(fleet)) == 1
            assert "fail copy of items: the source lost commits" in run(fleet, "doctor")[1]
            fleet.wait_for_leaders({1})
            verify_to_the_end(fleet, differs=True)
            assert_equal(fleet, copy)
            assert fleet.terminate() == [0]


def last_seq(fleet: Fleet) -> int:
    ((value,),) = fleet.query("SELECT last_value FROM tube_seq")
    assert isinstance(value, int)
    return value


def note(copy: str) -> str | None:
    """What a worker has noted at the sink."""
    with psycopg.connect(copy) as connection:
        row = connection.execute("SELECT obj_description('copy_pytube'::regclass, 'pg_class')").fetchone()
    return None if row is None else row[0]


def test_an_acknowledgement_ends_it_too(dsn: str) -> None:
    """As after a promotion, which is told of in the same way whoever sees it."""
    make_table(dsn, "items", 4)
    with open_session(dsn) as connection:
        connection.execute("SELECT tube_source_check()")
        connection.execute("UPDATE tube_source SET timeline = 7")

    def listed() -> list[bool]:
        rows = cli.run_json("status", dsn=dsn)
        return [one["is_certain"] for row in rows if row["partition"] == 0 for one in row["unverified"]]

    assert listed() == [False]
    acknowledge = ("tube", "acknowledge", "items")
    assert cli.run(*acknowledge, dsn=dsn).output == "items is no longer reported\n"
    assert listed() == []
    assert cli.run(*acknowledge, dsn=dsn).output == "nothing was reported of items\n"


def test_a_restored_dump(
    make_fleet: Callable[..., Fleet], postgres: Postgres, copy: str, tmp_path: Path
) -> None:
    fleet = make_fleet(sink_options=SINK.format(dsn=copy))
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    fleet.wait_until_drained()
    dump(fleet, postgres, tmp_path / "backup")
    fleet.change(*LOST_ROWS)
    fleet.change("DELETE FROM public.items WHERE id % 7 = 0")
    fleet.wait_until_drained()
    restore(fleet, postgres, tmp_path / "backup")
    found = wait_for_finding(fleet, is_certain=True)
    assert "restored from a dump" in found["detail"]
    fleet.wait_for_leaders({1, 2})
    fleet.wait_until_drained()
    assert differing(fleet, copy)
    verify_to_the_end(fleet, differs=True)
    assert_equal(fleet, copy)
    assert fleet.terminate() == [0, 0]
