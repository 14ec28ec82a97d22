"""The long run looks after its workers: who ended, who is silent, who grows."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import psycopg
import pytest
from psycopg import sql

from pytube.model import Token
from pytube.outbox.messages import OVERDUE
from tests.crash.chaos import outboxes, source
from tests.crash.chaos.arena import Arena
from tests.crash.chaos.crew import NOT_AVAILABLE, Crew, Member
from tests.crash.chaos.invariants import Invariant, Stopped
from tests.crash.chaos.log import Log
from tests.crash.chaos.measures import grown
from tests.crash.chaos.quiet import Quiet, is_under_way
from tests.crash.chaos.records import Call
from tests.helpers.outbox_sql import marked_ids, park
from tests.helpers.terms import Claim, Conn, acquire


@pytest.fixture
def crew(tmp_path: Path, dsn: str) -> Crew:
    """A crew whose workers are not started, and a database."""

    def connect() -> Conn:
        return psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public")

    arena = SimpleNamespace(folder=tmp_path, journals=tmp_path, connect=connect)
    return Crew(cast("Arena", arena))


def end(crew: Crew, name: str, code: int) -> None:
    """A worker ends."""
    member = crew.members[name]
    member.process = subprocess.Popen(["sh", "-c", f"exit {code}"])
    member.process.wait()


def living(crew: Crew) -> list[str]:
    """What is wrong with the workers."""
    found = crew.look()
    assert {violation.invariant for violation in found} <= {Invariant.LIVING}
    return [violation.what for violation in found]


@pytest.mark.parametrize("code", [0, 1, NOT_AVAILABLE])
def test_a_worker_that_ends_by_itself_is_found(crew: Crew, code: int) -> None:
    end(crew, "neli-2", code)
    assert len(living(crew)) == 1
    assert living(crew) == [], "once is enough"


def test_a_worker_whose_fault_explains_it_may_end(crew: Crew) -> None:
    crew.members["neli-2"].excused = True
    end(crew, "neli-2", 1)
    assert living(crew) == []


def test_a_worker_that_finds_a_server_down_is_started_again(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(crew, "start", started.append)
    crew.members["neli-2"].log.path.write_text('{"event": "kafka is not available"}\n')
    crew.members["neli-2"].started = time.monotonic()
    end(crew, "neli-2", NOT_AVAILABLE)
    assert living(crew) == []
    assert started == ["neli-2"]


def test_a_worker_that_had_come_up_must_outlive_its_servers(crew: Crew) -> None:
    member = crew.members["neli-2"]
    member.started = time.monotonic()
    member.log.path.write_text(
        '{"event": "leader_acquired", "timestamp": "2026-01-01T00:00:00Z", "tube": "live",'
        ' "leader_id": "a"}\n'
    )
    end(crew, "neli-2", NOT_AVAILABLE)
    assert len(living(crew)) == 1
    assert crew.told["live"].keys() == {"a"}


def test_who_listens_to_sigterm() -> None:
    for trap, listens in ((":", True), ("-", False)):
        shell = f"trap {trap} TERM; echo; read _"
        with subprocess.Popen(["sh", "-c", shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert Member("neli-2", "neli", Log(Path("none")), process).listens is listens
            process.kill()


def test_an_error_in_a_log_is_found(crew: Crew) -> None:
    log = crew.members["neli-2"].log.path
    log.write_text('{"event": "leading_failed", "level": "error"}\n')
    assert len(living(crew)) == 1
    crew.members["neli-2"].excused = True
    log.write_text(log.read_text() * 2)
    assert living(crew) == []


def test_a_partition_that_nobody_leads_is_found(crew: Crew, conn: Conn, dsn: str) -> None:
    source.make(dsn)
    outboxes.make(conn)
    quiet = Quiet(crew.arena, crew, lambda: None)
    with pytest.raises(Stopped, match="LED: not each partition is led"):
        quiet.until_led(0.0)
    of_tubes = [(tube.name, source.PARTITIONS) for tube in source.TUBES]
    of_outboxes = [(one.name, 1 if one.is_adopted else outboxes.PARTITIONS) for one in outboxes.OUTBOXES]
    for name, partitions in of_tubes + of_outboxes:
        for partition in range(partitions):
            term = acquire(conn, Claim(name, partitions, partition))
            crew.told[name][str(term.leader_id)] = 0.0
    quiet.until_led(10.0)
    crew.told[name].popitem()
    with pytest.raises(Stopped, match="LED"):
        quiet.until_led(0.0)


def test_a_touch_that_is_not_delivered_is_found(crew: Crew, conn: Conn, dsn: str) -> None:
    source.make(dsn)
    outboxes.make(conn)
    quiet = Quiet(crew.arena, crew, lambda: None)
    with pytest.raises(Stopped, match="LED: the tubes and outboxes are not empty"):
        quiet.until_drained(0.0)
    conn.execute("TRUNCATE tube.live, tube.slim")
    quiet.until_drained(10.0)


def test_a_call_of_a_process_whose_pid_is_anothers_by_now_is_over() -> None:
    began = time.time()
    call = Call("7", Token(1, 1), began, {}, pid=os.getpid())
    assert is_under_way(call)
    assert not is_under_way(replace(call, ended=began))
    assert not is_under_way(replace(call, began=psutil.Process().create_time() - 60))


def test_a_record_that_is_not_delivered_is_found(crew: Crew, conn: Conn, dsn: str) -> None:
    source.make(dsn)
    outboxes.make(conn)
    conn.execute("TRUNCATE tube.live, tube.slim")
    quiet = Quiet(crew.arena, crew, lambda: None)
    for outbox in outboxes.OUTBOXES:
        quiet.until_drained(10.0)
        outbox.stash(conn, ["k"])
        with pytest.raises(Stopped, match="LED: the tubes and outboxes are not empty"):
            quiet.until_drained(0.0)
        conn.execute(sql.SQL("TRUNCATE {}").format(outbox.table))


def test_a_record_that_is_parked_is_found(conn: Conn) -> None:
    outboxes.make(conn)
    outbox = next(one for one in outboxes.OUTBOXES if one.is_adopted)
    outbox.stash(conn, ["k"])
    term = acquire(conn, Claim(outbox.name, 1, 0))
    assert park(conn, term, *marked_ids(conn, term)) == [1]
    (wrong,) = outboxes.parked(conn, outbox)
    assert wrong.invariant is Invariant.SENDABLE
    assert outboxes.left(conn) == 0, "or the run would wait for it in vain"


def test_what_a_worker_says_of_the_broker_is_heard(crew: Crew) -> None:
    """What comes again of an outbox is judged by it."""
    entry = {"event": "sink_down", "tube": "windowed", "reason": OVERDUE.reason}
    crew.members["neli-2"].log.path.write_text(json.dumps(entry) + "\n")
    assert living(crew) == []
    assert crew.overdue == {"windowed"}


def test_a_worker_that_grows_is_found() -> None:
    assert grown({"neli-1": [60.0, 100.0], "neli-2": [60.0, 500.0]}) == []
    assert {wrong.invariant for wrong in grown({"neli-1": [60.0, 140.0]})} == {Invariant.LEAN}
