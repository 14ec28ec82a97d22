"""Which copies are to be verified: noted once when the source is another one, and until that was done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.helpers.capture import open_session
from tests.helpers.database import preparing
from tests.helpers.roles import as_role, roles
from tests.helpers.terms import Claim, Conn, acquire, scalar

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]


def two_tubes_and_an_outbox(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        for tube in ("a", "b"):
            conn.execute("SELECT tube_ensure_exists(%s)", (tube,))
            conn.execute("SELECT tube_table_ensure_attached(%s, 'public.items', 0)", (tube,))
        conn.execute("SELECT outbox_ensure_exists('o')")


prepare = preparing(two_tubes_and_an_outbox, "tubes")


@pytest.fixture
def conn(any_dsn: str) -> Iterator[Conn]:
    with session(any_dsn) as opened:
        yield opened


@pytest.fixture
def tubes(conn: Conn) -> Conn:
    """Two tubes and an outbox, whose source was looked at before."""
    assert check(conn) is None
    return conn


def check(conn: Conn, seen_seq: int | None = None, note: str | None = None) -> str | None:
    value: str | None = scalar(conn, "SELECT tube_source_check(%s, %s)", (seen_seq, note))
    return value


def commit(conn: Conn, tube: str = "a") -> str:
    """What a note names that is then left at the sink."""
    value: str = scalar(conn, "SELECT tube_source_note(%s)", (tube,))
    return value


def listed(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT tube, cause, is_certain FROM tube_unverified_list()").fetchall()


def change(conn: Conn, column: str, value: str) -> None:
    """What was written down differs from what is now, as after a restore or a failover."""
    conn.execute(f"UPDATE tube_source SET {column} = {value}".encode())


def backfill(conn: Conn, tube: str) -> None:
    """All of the table, delivered."""
    term = acquire(conn, Claim(tube=tube))
    number = scalar(conn, "SELECT tube_backfill_create(%s, 'public.items')", (tube,))
    conn.execute("SELECT tube_backfill_lock(%s)", (number,))
    conn.execute("SELECT tube_backfill_collect(%s)", (number,))
    conn.execute("SELECT tube_backfill_chunk(%s, 100)", (number,))
    conn.execute("SELECT tube_backfill_unlock(%s)", (number,))
    rows = conn.execute("SELECT seq, payload FROM tube_pods_mark(%s, %s, %s, %s, 100)", term.args).fetchall()
    end = max(seq for seq, payload in rows if payload and payload["type"] == "backfill_end")
    done = [seq for seq, _ in rows if seq != end]
    conn.execute("SELECT tube_pods_purge(%s, %s, %s, %s, %s)", (*term.args, done))
    conn.execute("SELECT tube_sweep_end(%s, %s, %s, %s, 0, %s)", (*term.args, end))
    state = "SELECT state FROM tube_backfill ORDER BY backfill_id DESC LIMIT 1"
    assert scalar(conn, state) == "finished"


def test_a_source_that_is_the_same_is_nothing_to_verify(tubes: Conn) -> None:
    known = tubes.execute("SELECT system_identifier, timeline FROM tube_source").fetchone()
    assert known == (scalar(tubes, "SELECT system_identifier FROM pg_control_system()"), 1)
    assert check(tubes) is None
    assert check(tubes, scalar(tubes, "SELECT tube_settle_seq()")) is None
    assert listed(tubes) == []


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("timeline", "timeline + 4", "timeline 1, before 5"),
        ("system_identifier", "7", "another server: system identifier "),
        ("sequence", "7", "restored from a dump"),
    ],
)
def test_another_source_has_each_tube_verified(tubes: Conn, column: str, value: str, told: str) -> None:
    change(tubes, column, value)
    everything = [(name, "source", False) for name in ("a", "b", "o")]
    assert listed(tubes) == everything, "before any worker has seen it"
    found = check(tubes)
    assert found is not None
    assert found.startswith(told)
    assert check(tubes) is None, "told once"
    rows = tubes.execute("SELECT tube, cause, is_certain, detail FROM tube_unverified_list()").fetchall()
    assert rows == [(name, "source", False, found) for name in ("a", "b", "o")]


def test_what_a_server_does_not_tell_is_no_change(tubes: Conn) -> None:
    tubes.execute("UPDATE tube_source SET system_identifier = NULL, timeline = NULL")
    assert listed(tubes) == []
    assert check(tubes) is None


def test_a_sequence_that_is_behind_is_certain(tubes: Conn) -> None:
    told = check(tubes, 4711)
    assert told is not None
    assert told.startswith("tube_seq is at ")
    assert listed(tubes) == [(name, "source", True) for name in ("a", "b", "o")]
    assert scalar(tubes, "SELECT nextval('tube_seq')") == 4712, "what was read is not drawn again"
    assert check(tubes, 4800), "another worker has read more"


# --- notes ----------------------------------------------------------------------------------------


def put_back(conn: Conn) -> None:
    """As by disks of an earlier time: all of now goes."""
    conn.execute("ROLLBACK TO SAVEPOINT earlier")


def test_what_was_committed_before_a_note_is_here(tubes: Conn) -> None:
    """Also before an earlier note than the last: a worker was killed before it left that."""
    notes = [commit(tubes) for _ in range(3)]
    assert len(set(notes)) == 3
    assert [check(tubes, note=note) for note in notes] == [None] * 3
    assert listed(tubes) == []


@pytest.mark.parametrize("later", [0, 1, 5, 99])
def test_a_note_of_a_commit_that_is_gone_is_certain(tubes: Conn, later: int) -> None:
    """However many notes other workers have left since then, who had not seen it, and whatever the seqs."""
    with tubes.transaction():
        commit(tubes)
        tubes.execute("SAVEPOINT earlier")
        lost = [commit(tubes) for _ in range(3)]
        put_back(tubes)
        for _ in range(later):
            commit(tubes)
    assert (
        check(tubes, 0, lost[-1])
        == "the note at the sink of a is of a commit that this database does not have"
    )
    assert listed(tubes) == [(name, "source", True) for name in ("a", "b", "o")]
    assert check(tubes, 0, lost[-1]) is None, "told once"
    assert check(tubes, note=commit(tubes)) is None


def test_the_seqs_are_told_where_they_say_something(tubes: Conn) -> None:
    with tubes.transaction():
        tubes.execute("SAVEPOINT earlier")
        lost = commit(tubes)
        put_back(tubes)
    told = check(tubes, 4711, lost)
    assert told is not None
    assert told.startswith(
        "the note at the sink of a is of a commit that this database does not have; tube_seq is at "
    )


def test_a_sink_that_was_put_back_is_no_loss(tubes: Conn) -> None:
    """Its note is here still, or was forgotten: also of a source that had lost commits before."""
    with tubes.transaction():
        known = [commit(tubes)]
        tubes.execute("SAVEPOINT earlier")
        lost = [commit(tubes) for _ in range(3)][1]
        put_back(tubes)
    assert check(tubes, note=lost) is not None
    known.append(lost)
    for _ in range(21):
        known += [commit(tubes) for _ in range(5)]
        assert [note for note in known if check(tubes, note=note) is not None] == []
    assert scalar(tubes, "SELECT cardinality(notes) FROM tube_sink") == 100


def test_a_tube_that_was_made_again_has_other_notes(tubes: Conn) -> None:
    """Of the same name, with the same sink; one of another tube at that sink says what it said."""
    notes = [commit(tubes), commit(tubes, "b")]
    tubes.execute("SELECT tube_ensure_absent('a'), tube_ensure_exists('a')")
    assert [check(tubes, note=note) for note in (*notes, commit(tubes))] == [None] * 3
    tubes.execute("UPDATE tube_sink SET notes = '{}', last_note = 0 WHERE tube = 'b'")
    assert check(tubes, note=notes[1]) is not None


@pytest.mark.parametrize(
    "note", ["", "by hand", "1:2", "1:2:3", f"{'9' * 30}:1:{'0' * 36}", f"1:1:{'-' * 36}"]
)
def test_what_no_worker_has_left_says_nothing(tubes: Conn, note: str) -> None:
    assert check(tubes, note=note) is None


def test_what_a_note_names_is_on_disk(tubes: Conn) -> None:
    with tubes.transaction():
        tubes.execute("SET LOCAL synchronous_commit = 'off'")
        commit(tubes)
        assert scalar(tubes, "SHOW synchronous_commit") == "on"


def test_a_lock_of_the_sequence_does_not_keep_it_from_being_noted(tubes: Conn, any_dsn: str) -> None:
    with session(any_dsn) as other, other.transaction():
        scalar(other, "SELECT nextval('tube_seq')")
        assert check(tubes, 4711) is not None
    assert scalar(tubes, "SELECT nextval('tube_seq')") < 4711
    assert check(tubes, 4711) is not None, "tried again by the next"
    assert scalar(tubes, "SELECT nextval('tube_seq')") == 4712


def test_an_outbox_is_acknowledged_and_not_verified(tubes: Conn) -> None:
    change(tubes, "timeline", "7")
    with pytest.raises(psycopg.Error) as refused:
        tubes.execute("SELECT tube_verified('o', 'verify')")
    assert refused.value.sqlstate == "TU111"
    assert scalar(tubes, "SELECT tube_verified('o')") == 1
    assert listed(tubes) == [("a", "source", False), ("b", "source", False)]
    assert scalar(tubes, "SELECT tube_verified('o')") == 0


def test_an_acknowledgement_ends_it_for_one_tube_and_is_audited(tubes: Conn) -> None:
    change(tubes, "timeline", "7")
    assert scalar(tubes, "SELECT tube_verified('a')") == 1, "also before any worker has seen it"
    assert listed(tubes) == [("b", "source", False), ("o", "source", False)]
    assert scalar(tubes, "SELECT tube_verified('a')") == 0
    audit = tubes.execute("SELECT action, tube, details FROM tube_audit").fetchall()
    assert audit == [("acknowledge", "a", {"causes": ["source"]})]


def test_what_came_up_during_a_verification_stays(tubes: Conn) -> None:
    tubes.execute("SELECT tube_sampled('a', 10, 1, 0, 'extra 7')")
    since = scalar(tubes, "SELECT since FROM tube_unverified_list('a')")
    change(tubes, "timeline", "7")
    check(tubes)
    assert scalar(tubes, "SELECT tube_verified('a', 'verify', %s)", (since,)) == 1
    assert listed(tubes) == [(name, "source", False) for name in ("a", "b", "o")]


def test_a_backfill_of_all_root_tables_that_began_later_ends_it(tubes: Conn) -> None:
    tubes.execute("CREATE TABLE public.more (id bigint PRIMARY KEY)")
    tubes.execute("SELECT tube_table_ensure_attached('b', 'public.more', 1)")
    backfill(tubes, "a")
    change(tubes, "timeline", "7")
    check(tubes)
    tubes.execute("SELECT tube_verified('o')")
    assert len(listed(tubes)) == 2, "a backfill of before is no help"
    backfill(tubes, "a")
    backfill(tubes, "b")
    assert listed(tubes) == [("b", "source", False)], "its other table was not backfilled"


def test_a_sample(tubes: Conn) -> None:
    tubes.execute("SELECT tube_sampled('a', 10, 0, 2, '')")
    assert listed(tubes) == []
    tubes.execute("SELECT tube_sampled('a', 10, 1, 0, 'extra 7')")
    assert listed(tubes) == [("a", "sample", True)]
    tubes.execute("SELECT tube_sampled('a', 20, 0, 0, '')")
    assert listed(tubes) == [("a", "sample", True)], "other keys may differ still"
    row = tubes.execute("SELECT checked, differing, undecided FROM tube_sample").fetchall()
    assert row == [(20, 0, 0)]
    tubes.execute("SELECT tube_sampled('gone', 10, 1, 0, '')")
    tubes.execute("SELECT tube_sampled('o', 10, 1, 0, '')")
    assert scalar(tubes, "SELECT count(*) FROM tube_sample") == 1


def test_it_goes_with_the_tube(tubes: Conn) -> None:
    tubes.execute("SELECT tube_sampled('a', 10, 1, 0, 'extra 7')")
    tubes.execute("SELECT tube_ensure_absent('a')")
    assert listed(tubes) == []


def test_another_word_for_it(tubes: Conn) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is not verified by 'guess'"):
        tubes.execute("SELECT tube_verified('a', 'guess')")
    with pytest.raises(psycopg.Error) as refused:
        tubes.execute("SELECT tube_verified('gone')")
    assert refused.value.sqlstate == "TU102"


def test_a_session_that_may_not_write_notes_nothing(tubes: Conn) -> None:
    change(tubes, "timeline", "7")
    tubes.execute("SET default_transaction_read_only = on")
    assert check(tubes) is None
    assert len(listed(tubes)) == 3
    tubes.execute("SET default_transaction_read_only = off")
    assert check(tubes) is not None


def test_two_workers_note_it_once(tubes: Conn, any_dsn: str) -> None:
    change(tubes, "timeline", "7")
    with tubes.transaction():
        assert check(tubes) is not None
        other = session(any_dsn)
        assert len(listed(other)) == 3, "nobody who looks waits"
    assert check(other) is None
    other.close()


def test_plain_roles_are_enough(tubes: Conn, any_dsn: str) -> None:
    """A login that is a member of tube_worker alone, and no superuser, on any server."""
    change(tubes, "timeline", "7")
    with (
        roles(any_dsn, "k_looker IN ROLE tube_monitor", "k_server IN ROLE tube_worker"),
        session(any_dsn, "k_looker") as looker,
        session(any_dsn, "k_server") as server,
    ):
        assert len(listed(looker)) == 3
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            looker.execute("SELECT tube_verified('a')")
        assert check(server) is not None
        assert scalar(server, "SELECT tube_verified('a', 'verify')") == 1


def session(dsn: str, role: str = "postgres") -> Conn:
    return psycopg.connect(as_role(dsn, role), autocommit=True, options="-c search_path=tube,public")


def test_a_writer_that_stays_open_does_not_hold_up_who_reports_lost_commits(
    tubes: Conn, any_dsn: str
) -> None:
    """Workers ask between their renewals: ids are drawn on from beyond only if nobody is in the way."""
    seen = scalar(tubes, "SELECT nextval('tube_seq')") + 50
    with session(any_dsn) as writer, writer.transaction():
        writer.execute("SELECT nextval('tube_seq')")
        tubes.execute("SET statement_timeout = '3s'")
        assert check(tubes, seen) is not None
        assert ("o", "source", True) in listed(tubes)
    assert scalar(tubes, "SELECT nextval('tube_seq')") < seen


def test_ids_go_on_beyond_what_was_read_in_steps_that_make_sense(tubes: Conn) -> None:
    was = scalar(tubes, "SELECT nextval('tube_seq')")
    assert check(tubes, was + 2_000_000_000) is not None
    assert scalar(tubes, "SELECT nextval('tube_seq')") == was + 1
    assert check(tubes, was + 50) is not None
    assert scalar(tubes, "SELECT nextval('tube_seq')") == was + 51
