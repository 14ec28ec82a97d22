"""The parts of the long run that its checker rests on: journals, logs, the monkey, the page."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from pytube.errors import SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Document, Reject, Token
from tests.crash.chaos import reader, sink, source
from tests.crash.chaos.arena import Arena
from tests.crash.chaos.course import FAULTS
from tests.crash.chaos.crew import NOT_AVAILABLE, Crew, Member
from tests.crash.chaos.invariants import Invariant, Stopped, Violation
from tests.crash.chaos.ledger import Ledger
from tests.crash.chaos.log import Log, is_grave, moment_of
from tests.crash.chaos.measures import Measures, grown
from tests.crash.chaos.monkey import Course, Fault, Monkey, NotNow, Scene
from tests.crash.chaos.page import Outcome, report
from tests.crash.chaos.quiet import Quiet
from tests.crash.chaos.records import Term, Window
from tests.helpers.terms import Claim, Conn, acquire, mark, purge
from tests.helpers.terms import Term as Held
from tests.helpers.waiting import wait_until

LIVE = source.TUBES[0]
SHARD, KEY = 7, 7
"""A row of `items`: 7 is in shard 7 of `live`, and refused when its `n` is odd."""


# --- journals -----------------------------------------------------------------------------------


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A sink in this process, always in a good mood unless a test says otherwise."""
    monkeypatch.setenv(sink.FOLDER, str(tmp_path))
    monkeypatch.setenv(sink.CLIENT, "tester")
    monkeypatch.setattr(sink, "MOODS", {})
    monkeypatch.setattr(sink, "_files", {})
    yield tmp_path
    for file in sink._files.values():
        file.close()


def document(n: int | None, token: Token, key: int = KEY) -> Document:
    body = None if n is None else json.dumps({"id": key, "n": n}).encode()
    return Document(SHARD, key, body, token, 1)


def batch(n: int | None, counter: int = 1, epoch: int = 5) -> Batch:
    token = Token(epoch, counter)
    return Batch(LIVE.name, 3, token, [document(n, token), document(n, token, 23)])


def calls(folder: Path) -> list[Any]:
    return reader.read_calls(sink.calls_of(LIVE.name, folder))


def test_the_sink_writes_down_what_it_took_and_refused(moody: Path) -> None:
    assert sink.send(batch(3)) == [Reject(sink.REASON), OK]
    (call,) = calls(moody)
    assert call.versions == {(7, 7): 3, (7, 23): 3}
    assert call.refused == {(7, 7)}
    assert call.answered == {(7, 7), (7, 23)}
    assert call.began < call.ended
    assert [line.id for line in reader.read_lines(sink.lines_of(LIVE.name, moody))] == [23]


@pytest.mark.parametrize(
    ("mood", "error", "written"),
    [("down", SinkUnavailable, 0), ("mute", SinkTimeout, 2), ("mute and deaf", SinkTimeout, 0)],
)
def test_a_mood_is_written_down_as_what_it_was(
    moody: Path, monkeypatch: pytest.MonkeyPatch, mood: str, error: type[Exception], written: int
) -> None:
    monkeypatch.setattr(sink, "MOODS", {mood: 1.0})
    with pytest.raises(error):
        sink.send(batch(2))
    (call,) = calls(moody)
    assert call.failed
    assert call.answered == set()
    assert len(reader.read_lines(sink.lines_of(LIVE.name, moody))) == written


def test_a_record_that_was_cut_off_is_passed_over(moody: Path) -> None:
    sink.send(batch(2))
    (path,) = sink.calls_of(LIVE.name, moody)
    path.write_bytes(path.read_bytes()[:-20])
    (call,) = calls(moody)
    assert call.ended is None
    assert call.answered == set()


def test_a_send_that_is_too_late_is_no_call(moody: Path) -> None:
    late = batch(2)
    late.send_before = 0.0
    with pytest.raises(SinkUnavailable):
        sink.send(late)
    assert calls(moody) == []


@pytest.fixture
def led(dsn: str, conn: Conn) -> Held:
    """The source of the long run, all of it delivered, and a term over one partition of `live`."""
    source.make(dsn)
    conn.execute("TRUNCATE tube.live, tube.slim, chaos.change, chaos.pod, chaos.purge")
    conn.execute("TRUNCATE public.items, public.extras")
    return acquire(conn, Claim(LIVE.name, source.PARTITIONS, SHARD % source.PARTITIONS))


def window(conn: Conn, folder: Path) -> Window:
    return reader.read(conn, LIVE, folder, {}, 2.0, 3.0)


def deliver(conn: Conn, term: Held) -> None:
    """What a worker does with one row."""
    marked = mark(conn, term)
    rows = dict(conn.execute("SELECT id, row_to_json(i.*)::text FROM items i").fetchall())
    token = Token(term.epoch, 1)
    ids = {key for pod in marked for key in pod.ids}
    documents = [
        Document(SHARD, key, rows[key].encode() if key in rows else None, token, 1) for key in sorted(ids)
    ]
    sink.send(Batch(LIVE.name, term.partition, token, documents))
    purge(conn, term, [pod.seq for pod in marked])


def test_a_window_holds_what_happened(conn: Conn, led: Held, moody: Path) -> None:
    with conn.transaction():
        conn.execute("INSERT INTO items VALUES (23, 1)")
        conn.execute("UPDATE items SET n = 2 WHERE id = 23")
    deliver(conn, led)
    found = window(conn, moody)
    assert Ledger().take(found) == []
    assert [pod.ids for pod in found.pods] == [[23], [23]]
    assert {change.n for change in found.changes} == {1, 2}
    assert {purge.leader_id for purge in found.purges} == {str(led.leader_id)}
    reader.forget(conn)
    assert window(conn, moody).pods == []


def test_changes_are_in_the_order_of_their_commits(conn: Conn, led: Held, moody: Path, dsn: str) -> None:
    """A transaction that began first, and so has the lower xid, deletes what a later one has inserted."""
    with psycopg.connect(dsn) as first:
        first.execute("INSERT INTO items VALUES (39, 1)")
        conn.execute("INSERT INTO items VALUES (23, 1)")
        first.execute("DELETE FROM items WHERE id = 23")
    deliver(conn, led)
    found = window(conn, moody)
    inserted, gone = (change for change in found.changes if change.key == (SHARD, 23))
    assert inserted.xid > gone.xid
    assert (inserted.n, gone.n) == (1, None)
    assert Ledger().take(found) == []


@pytest.mark.usefixtures("led")
def test_a_row_that_a_tube_does_not_follow_any_more_is_gone(conn: Conn, moody: Path) -> None:
    conn.execute("INSERT INTO items VALUES (23, 1)")
    conn.execute("UPDATE items SET n = 2, hidden = true WHERE id = 23")
    live, slim = (reader.read(conn, tube, moody, {}, 2.0, 3.0) for tube in source.TUBES)
    assert [change.n for change in live.changes] == [1, 2]
    assert [change.n for change in slim.changes] == [1, None]


def test_each_renewal_is_written_down(conn: Conn, led: Held, moody: Path) -> None:
    (began,) = window(conn, moody).renewals[str(led.leader_id)]
    for _ in range(2):
        conn.execute("SELECT FROM tube_leaders_renew('live', %s)", ([led.leader_id],))
    found = window(conn, moody)
    (term,) = found.terms
    assert began == term.acquired_at
    first, second, third = found.renewals[term.leader_id]
    assert began == first < second < third == term.renewed_at
    reader.forget(conn)
    assert window(conn, moody).renewals == found.renewals, "the next window needs the last ones"
    conn.execute("UPDATE chaos.renewal SET at = at - 61 WHERE at < %s", (third,))
    reader.forget(conn)
    assert window(conn, moody).renewals == {term.leader_id: [third]}


def test_a_purge_that_nothing_stands_for_is_found(conn: Conn, led: Held, moody: Path) -> None:
    conn.execute("INSERT INTO items VALUES (23, 1)")
    purge(conn, led, [pod.seq for pod in mark(conn, led)])
    assert {wrong.invariant for wrong in Ledger().take(window(conn, moody))} == {
        Invariant.ACKNOWLEDGED,
        Invariant.EQUAL,
    }


@pytest.mark.usefixtures("led")
def test_a_change_that_is_not_captured_is_found(conn: Conn, moody: Path) -> None:
    conn.execute("ALTER TABLE items DISABLE TRIGGER items_live_after_insert_trigger")
    conn.execute("INSERT INTO items VALUES (23, 1)")
    found = {wrong.invariant for wrong in Ledger().take(window(conn, moody))}
    assert found == {Invariant.CAPTURED, Invariant.EQUAL}


# --- logs ---------------------------------------------------------------------------------------


def test_a_log_is_read_as_it_grows(tmp_path: Path) -> None:
    log = Log(tmp_path / "worker.log")
    assert log.news() == []
    log.path.write_text('{"event": "one"}\n{"event"')
    assert log.news() == [{"event": "one"}]
    with log.path.open("a") as file:
        file.write(': "two"}\npytube: a sentence\n')
    assert log.news() == [{"event": "two"}, {"text": "pytube: a sentence"}]


@pytest.mark.parametrize(
    ("entry", "grave"),
    [
        ({"level": "error"}, True),
        ({"text": "Traceback (most recent call last):"}, True),
        ({"level": "warning"}, False),
        ({"text": "pytube: Postgres is not available"}, False),
    ],
)
def test_what_is_grave(entry: dict[str, Any], grave: bool) -> None:
    assert is_grave(entry) is grave


def test_the_moment_of_an_entry() -> None:
    assert moment_of({"timestamp": "1970-01-01T00:01:00.5Z"}) == 60.5


# --- the crew -----------------------------------------------------------------------------------


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
        '{"event": "leader acquired", "timestamp": "2026-01-01T00:00:00Z", "tube": "live",'
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
    log.write_text('{"event": "leading failed", "level": "error"}\n')
    assert len(living(crew)) == 1
    crew.members["neli-2"].excused = True
    log.write_text(log.read_text() * 2)
    assert living(crew) == []


def test_a_partition_that_nobody_leads_is_found(crew: Crew, conn: Conn, dsn: str) -> None:
    source.make(dsn)
    quiet = Quiet(crew.arena, crew, lambda: None)
    with pytest.raises(Stopped, match="LED: not each partition is led"):
        quiet.until_led(0.0)
    for tube in source.TUBES:
        for partition in range(source.PARTITIONS):
            term = acquire(conn, Claim(tube.name, source.PARTITIONS, partition))
            crew.told[tube.name][str(term.leader_id)] = 0.0
    quiet.until_led(10.0)
    crew.told["live"].popitem()
    with pytest.raises(Stopped, match="LED"):
        quiet.until_led(0.0)


def test_a_touch_that_is_not_delivered_is_found(crew: Crew, conn: Conn, dsn: str) -> None:
    source.make(dsn)
    quiet = Quiet(crew.arena, crew, lambda: None)
    with pytest.raises(Stopped, match="LED: the tubes are not empty"):
        quiet.until_drained(0.0)
    conn.execute("TRUNCATE tube.live, tube.slim")
    quiet.until_drained(10.0)


def test_a_worker_that_grows_is_found() -> None:
    assert grown({"neli-1": [60.0, 100.0], "neli-2": [60.0, 500.0]}) == []
    assert {wrong.invariant for wrong in grown({"neli-1": [60.0, 140.0]})} == {Invariant.LEAN}


# --- the monkey ---------------------------------------------------------------------------------


def monkey(tmp_path: Path, *faults: Fault) -> Monkey:
    scene = Scene(cast("Any", None), cast("Any", None), random.Random(0))
    return Monkey(scene, list(faults), tmp_path / "faults.jsonl")


def struck(chosen: Monkey) -> None:
    """Let it strike at once."""
    chosen._next = 0.0
    chosen.step()


def test_a_fault_is_seen_to_its_end(tmp_path: Path) -> None:
    steps = []

    def fault(scene: Scene) -> Course:
        with scene.alone("it"):
            scene.tell("begins")
            yield 0.01
            steps.append("ends")

    chosen = monkey(tmp_path, Fault("a fault", 1, fault))
    struck(chosen)
    assert not chosen.is_calm
    struck(chosen)  # the same target: nothing comes of it
    assert chosen.counts == {"a fault": 1}

    def calm() -> bool:
        chosen.go_on()
        return chosen.is_calm

    wait_until(calm)
    assert steps == ["ends"]
    (record,) = map(json.loads, (tmp_path / "faults.jsonl").read_text().splitlines())
    assert record["fault"] == "a fault"
    assert record["what"] == "begins"


def test_a_fault_that_finds_the_server_down_does_not_count(tmp_path: Path) -> None:
    def fault(_: Scene) -> Course:
        psycopg.connect("host=/nonexistent")
        yield 0.0

    chosen = monkey(tmp_path, Fault("a fault", 1, fault))
    struck(chosen)
    assert chosen.is_calm
    assert not chosen.counts


def strikes(_: Scene) -> Course:
    yield 0.0


def test_every_fault_strikes_within_a_round(tmp_path: Path) -> None:
    """Each as often as its weight says, whatever the seed."""
    weights = {"common": 4, "usual": 1, "rare": 0.5}
    chosen = monkey(tmp_path, *(Fault(name, weight, strikes) for name, weight in weights.items()))
    assert chosen.missing == list(weights)
    for round_ in (1, 2):
        for _ in range(11):
            struck(chosen)
        assert chosen.counts == {"common": 8 * round_, "usual": 2 * round_, "rare": round_}
    assert chosen.missing == []


def test_a_fault_that_came_to_nothing_comes_again(tmp_path: Path) -> None:
    tries = 0

    def at_the_third(scene: Scene) -> Course:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise NotNow
        yield from strikes(scene)

    chosen = monkey(tmp_path, Fault("easy", 1, strikes), Fault("hard", 0.5, at_the_third))
    for _ in range(3):
        struck(chosen)
    assert chosen.missing == ["hard"]
    for _ in range(4):  # the next round has it twice
        struck(chosen)
    assert chosen.counts == {"easy": 4, "hard": 1}


def test_what_is_over_at_once_did_not_strike(tmp_path: Path) -> None:
    chosen = monkey(tmp_path, Fault("nothing", 1, lambda _: iter(())))
    struck(chosen)
    assert chosen.is_calm
    assert chosen.missing == ["nothing"]


def test_in_the_end_those_that_are_missing_come_first(tmp_path: Path) -> None:
    ready = False

    def rare(scene: Scene) -> Course:
        if not ready:
            raise NotNow
        yield from strikes(scene)

    chosen = monkey(tmp_path, Fault("common", 4, strikes), Fault("rare", 0.5, rare))
    for _ in range(9):
        struck(chosen)
    chosen.insist()
    for _ in range(3):
        struck(chosen)
    ready = True
    struck(chosen)
    assert chosen.counts == {"common": 8, "rare": 1}
    struck(chosen)
    assert chosen.counts.total() == 10, "then all come again"


def test_all_faults_come_in_a_round() -> None:
    """A weight that is no multiple of 0.5 would be rounded, maybe to nothing."""
    assert all(fault.weight > 0 and 2 * fault.weight % 1 == 0 for fault in FAULTS)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_targets_are_let_go() -> None:
    scene = Scene(cast("Any", None), cast("Any", None), random.Random(0))
    with scene.alone("one", "two"), pytest.raises(NotNow), scene.alone("two"):
        pass
    with scene.alone("two"):
        pass


# --- figures and the page -----------------------------------------------------------------------


def test_take_overs_are_measured_from_the_last_sign_of_life() -> None:
    measures = Measures()
    terms = [
        Term("a", 1, 4, 0, 5.0, 1.0, 20.0, 24.0, "superseded"),
        Term("b", 2, 4, 0, 5.0, 24.0, 33.0, 40.0, "released"),
        Term("c", 3, 4, 0, 5.0, 41.0, 50.0),
    ]
    measures.saw(Window("live", 2.0, 3.0, terms=terms, told={"b": 25.5, "c": 41.5}))
    assert measures.takeovers == [5.5]


@pytest.mark.parametrize("violations", [[], [Violation(Invariant.EQUAL, "key 7 differs")]])
def test_the_page_says_how_it_went(violations: list[Violation]) -> None:
    measures = Measures(memory={"neli-1": [60.0, 61.0]})
    outcome = Outcome(datetime(2026, 1, 1, tzinfo=UTC), 3600.0, 7, "18", 20, 5, 6, {"a fault": 3}, measures)
    outcome.violations = violations
    outcome.missing = ["another"]
    page = report(outcome)
    assert ("0 violations" in page) is (not violations)
    assert ("EQUAL: key 7 differs" in page) is bool(violations)
    assert "| a fault | 3 |" in page
    assert "| another | 0 |" in page
    assert "Never struck in this run: another." in page
    assert "60 to 61 MiB" in page
    assert all(invariant.value in page for invariant in Invariant)
