"""The journals of the long run: what its sink, its source and its terms write down, read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.errors import SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Document, Reject, Token
from tests.crash.chaos import reader, sink, source
from tests.crash.chaos.invariants import Invariant
from tests.crash.chaos.ledger import Ledger
from tests.crash.chaos.records import Window
from tests.helpers.terms import Claim, Conn, acquire, mark, purge
from tests.helpers.terms import Term as Held

LIVE = source.TUBES[0]
SHARD, KEY = 7, 7
"""A row of `items`: 7 is in shard 7 of `live`, and refused when its `n` is odd."""


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
    # The tables first: a TRUNCATE of them is captured, too.
    conn.execute("TRUNCATE public.items, public.extras")
    conn.execute("TRUNCATE tube.live, tube.slim, chaos.change, chaos.pod, chaos.purge")
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
    assert began == pytest.approx(term.acquired_at, abs=1e-5)
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
