"""Jobs: units that are in once, whoever writes them; what is staged comes at once or never."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.conftest import Connect
from tests.helpers.capture import open_session
from tests.helpers.database import preparing

Conn = psycopg.Connection[Any]


@pytest.fixture
def tube(conn: Conn) -> str:
    conn.execute("SELECT tube_ensure_exists('t', 2), tube_ensure_exists('other')")
    return "t"


def begin(conn: Conn, kind: str = "direct", **more: Any) -> Any:
    arguments: dict[str, Any] = {"job": "j", "tubes": ["t"], "kind": kind, "print": "f", "units": 4, **more}
    row = conn.execute(
        "SELECT state, unit_count, stage, known"
        " FROM tube_job_begin(%(job)s, %(tubes)s, %(kind)s, %(print)s, %(units)s)",
        arguments,
    ).fetchone()
    assert row is not None
    return row


def done(conn: Conn, unit: int, job: str = "j") -> bool:
    row = conn.execute("SELECT tube_job_done(%s, %s, 2, 2, 1, '{0}')", [job, unit]).fetchone()
    assert row is not None
    return bool(row[0])


def pods(conn: Conn, tube: str = "t") -> list[Any]:
    return [row[0] for row in conn.execute(f"SELECT ids FROM {tube} ORDER BY seq").fetchall()]


@pytest.mark.usefixtures("tube")
def test_a_unit_is_in_once(conn: Conn) -> None:
    assert begin(conn) == ("running", 4, None, False)
    assert done(conn, 1)
    assert not done(conn, 1)
    assert begin(conn, units=9) == ("running", 4, None, True)
    assert conn.execute("SELECT tube_job_units('j'), tube_job_units('none')").fetchone() == ([1], [])
    assert conn.execute(
        "SELECT state, units_done, units, rows, ids, pods FROM tube_job_list()"
    ).fetchall() == [("running", 1, 4, 2, 2, 1)]


@pytest.mark.usefixtures("tube")
def test_two_that_write_one_unit_meet_in_the_ledger(conn: Conn, connect: Connect) -> None:
    begin(conn)
    first, second = connect(autocommit=False), connect()
    assert done(first, 0)
    second.execute("SET lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        done(second, 0)
    first.rollback()
    assert done(second, 0)


@pytest.mark.usefixtures("tube")
def test_nothing_comes_late_into_a_job_that_is_done(conn: Conn) -> None:
    begin(conn)
    done(conn, 0)
    for _ in range(2):
        assert conn.execute("SELECT rows_done, ids_done, pods_done FROM tube_job_finish('j')").fetchone() == (
            2,
            2,
            1,
        )
    with pytest.raises(psycopg.Error, match="was done at") as raised:
        done(conn, 1)
    assert raised.value.sqlstate == "TU132"
    assert begin(conn)[0] == "done"


@pytest.mark.usefixtures("tube")
@pytest.mark.parametrize("other", [{"print": "g"}, {"tubes": ["other"]}, {"kind": "staged"}])
def test_a_name_is_one_job(conn: Conn, other: dict[str, Any]) -> None:
    begin(conn)
    with pytest.raises(psycopg.Error, match="another query") as raised:
        begin(conn, **{"kind": "direct", **other})
    assert raised.value.sqlstate == "TU130"


@pytest.mark.usefixtures("tube")
def test_what_is_refused(conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('words', 1, NULL, 'text')")
    for tubes, state in ((["none"], "TU102"), (["t", "words"], "42804"), ([], "22004")):
        with pytest.raises(psycopg.Error) as raised:
            begin(conn, tubes=tubes)
        assert raised.value.sqlstate == state
    for call in ("tube_job_done('none', 0, 0, 0, 0)", "tube_job_finish('none')"):
        with pytest.raises(psycopg.Error) as raised:
            conn.execute(f"SELECT {call}")
        assert raised.value.sqlstate == "TU131"
    with pytest.raises(psycopg.Error, match="neither a job nor a time"):
        conn.execute("SELECT tube_job_forget(NULL)")


@pytest.mark.usefixtures("tube")
def test_what_is_staged_comes_at_once_into_all_tubes(conn: Conn, connect: Connect) -> None:
    stage = begin(conn, "staged", tubes=["t", "other"])[2]
    conn.execute(f"INSERT INTO {stage} (op, shard, ids) VALUES ('T', 0, '{{1}}'), ('T', 1, '{{2}}')")
    done(conn, 0)
    assert pods(conn) == []
    with connect(autocommit=False) as other:
        other.execute("SELECT tube_job_finish('j')")
        assert pods(conn) == []
    assert pods(conn) == pods(conn, "other") == [[1], [2]]
    assert conn.execute("SELECT to_regclass(%s)", [stage]).fetchone() == (None,)


@pytest.mark.parametrize("key_type", ["uuid", "text"])
def test_what_is_staged_has_the_keys_of_its_tubes(conn: Conn, key_type: str) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 1, NULL, %s::regtype)", [key_type])
    stage = begin(conn, "staged")[2]
    key = "6ecd8c99-4036-403d-bf84-cf8400f67836"
    conn.execute(f"INSERT INTO {stage} (op, shard, ids) VALUES ('T', 0, ARRAY['{key}']::{key_type}[])")
    conn.execute("SELECT tube_job_finish('j')")
    assert conn.execute("SELECT shard, ids::text[] FROM t").fetchall() == [(0, [key])]


@pytest.mark.usefixtures("tube")
def test_a_job_is_forgotten_with_what_it_has_staged(conn: Conn) -> None:
    stage = begin(conn, "staged")[2]
    conn.execute(f"INSERT INTO {stage} (op, shard, ids) VALUES ('T', 0, '{{1}}')")
    assert conn.execute("SELECT tube_job_forget(NULL, clock_timestamp())").fetchone() == (
        0,
    )  # it has not ended
    assert conn.execute("SELECT tube_job_forget('j')").fetchone() == (1,)
    assert conn.execute("SELECT to_regclass(%s)", [stage]).fetchone() == (None,)
    begin(conn)
    conn.execute("SELECT tube_job_finish('j')")
    assert conn.execute("SELECT tube_job_forget(NULL, clock_timestamp())").fetchone() == (1,)


@pytest.mark.usefixtures("tube")
def test_a_stream_purges_what_it_has_read(conn: Conn) -> None:
    conn.execute(
        "SELECT t_touch(n, ARRAY[n]::bigint[], CASE WHEN n % 2 = 0 THEN 'B' ELSE 'U' END)"
        " FROM generate_series(1, 6) AS n"
    )
    rows = conn.execute("SELECT seq FROM t ORDER BY seq").fetchall()
    assert conn.execute("SELECT tube_stream_purge('t', %s)", rows[3]).fetchone() == (4,)
    assert pods(conn) == [[5], [6]]
    conn.execute(
        "SELECT tube_leader_acquire('t', 2, 0, gen_random_uuid(), gen_random_uuid(), 'w',"
        " tube_leader_epoch('t', 2, 0), 'neli')"
    )
    with pytest.raises(psycopg.Error, match="has workers") as raised:
        conn.execute("SELECT tube_stream_purge('t', %s)", rows[5])
    assert raised.value.sqlstate == "TU133"


# --- backfills in ranges ----------------------------------------------------------------------------


def attached_rows(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("SELECT tube_ensure_exists('t', 2)")
        conn.execute("CREATE TABLE public.x (id bigint PRIMARY KEY, at timestamptz)")
        conn.execute(
            "INSERT INTO public.x SELECT g, CASE WHEN g % 10 > 0 THEN now() - g * interval '1 s' END"
            " FROM generate_series(1, 1000) AS g"
        )
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 3, 4)")


prepare = preparing(attached_rows, "backfill")


@pytest.fixture
def backfill(conn: Conn) -> int:
    """One of a table of 1000 rows over 4 shards, taken by `conn`."""
    row = conn.execute("SELECT tube_backfill_create('t', 'public.x', 'at')").fetchone()
    assert row is not None
    conn.execute("SELECT tube_backfill_lock(%s)", row)
    return int(row[0])


def split(conn: Conn, number: int, ranges: int = 5) -> int:
    conn.execute("SELECT tube_backfill_split(%s, %s)", [number, ranges])
    row = conn.execute("SELECT units FROM tube_job_list(%s)", [f"backfill {number}"]).fetchone()
    assert row is not None
    return int(row[0])


def one_range(conn: Conn, number: int, unit: int) -> Any:
    row = conn.execute("SELECT tube_backfill_range(%s, %s)", [number, unit]).fetchone()
    assert row is not None
    return row[0]


def state(conn: Conn) -> Any:
    row = conn.execute(
        "SELECT state, rows_done FROM tube_backfill_list() ORDER BY backfill_id LIMIT 1"
    ).fetchone()
    assert row is not None
    return row


def test_all_rows_of_all_ranges(conn: Conn, connect: Connect, backfill: int) -> None:
    units = split(conn, backfill)
    assert units == 5
    assert split(conn, backfill) == 5
    others = [connect(), connect()]
    rows = [one_range(others[unit % 2], backfill, unit) for unit in reversed(range(units))]
    assert sum(rows) == 1000
    assert one_range(conn, backfill, 2) == 0
    assert state(conn) == ("inserting", 1000)
    assert conn.execute(
        "SELECT tube_backfill_join(%s), tube_backfill_join(%s)", [backfill, backfill]
    ).fetchone() == (
        True,
        True,
    )
    assert state(conn) == ("delivering", 1000)
    found = conn.execute("SELECT op, payload ->> 'type', shard, ids FROM t ORDER BY seq").fetchall()
    assert [row[:3] for row in found[:4]] == [("T", "backfill_start", shard) for shard in range(3, 7)]
    assert [row[:3] for row in found[-4:]] == [("B", "backfill_end", shard) for shard in range(3, 7)]
    keys = sorted((shard, key) for _, _, shard, ids in found for key in ids)
    assert keys == sorted((3 + key % 4, key) for key in range(1, 1001))


def test_an_end_only_when_all_are_in(conn: Conn, backfill: int) -> None:
    units = split(conn, backfill)
    for unit in range(units - 1):
        one_range(conn, backfill, unit)
    assert conn.execute("SELECT tube_backfill_join(%s)", [backfill]).fetchone() == (False,)
    assert conn.execute("SELECT count(*) FROM t WHERE payload ->> 'type' = 'backfill_end'").fetchone() == (0,)


def test_a_paused_one_waits_and_a_cancelled_one_takes_back(conn: Conn, backfill: int) -> None:
    split(conn, backfill)
    conn.execute("SELECT tube_backfill_command(%s, 'pause')", [backfill])
    assert one_range(conn, backfill, 0) is None
    conn.execute("SELECT tube_backfill_command(%s, 'resume')", [backfill])
    assert one_range(conn, backfill, 0) > 0
    conn.execute("SELECT tube_backfill_command(%s, 'cancel')", [backfill])
    assert pods(conn) == []
    with pytest.raises(psycopg.Error, match="is cancelled") as raised:
        one_range(conn, backfill, 1)
    assert raised.value.sqlstate == "TU124"
    assert pods(conn) == []


def test_chunks_keep_away_from_ranges(conn: Conn, backfill: int) -> None:
    split(conn, backfill)
    with pytest.raises(psycopg.Error, match="in ranges, not in chunks") as raised:
        conn.execute("SELECT tube_backfill_chunk(%s, 1)", [backfill])
    assert raised.value.sqlstate == "TU123"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("SELECT tube_ensure_exists('t', 2, 'id > 7')", "another predicate"),
        ("SELECT tube_table_ensure_attached('t', 'public.x', 3, 5)", "other shards"),
    ],
)
def test_ranges_of_a_table_that_is_attached_otherwise(
    conn: Conn, backfill: int, change: str, why: str
) -> None:
    split(conn, backfill)
    one_range(conn, backfill, 0)
    conn.execute(change)
    with pytest.raises(psycopg.Error, match=why) as raised:
        one_range(conn, backfill, 1)
    assert raised.value.sqlstate == "TU108"


def test_a_split_of_a_table_that_is_attached_otherwise(conn: Conn, backfill: int) -> None:
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 3, 5)")
    with pytest.raises(psycopg.Error, match="can't be split any more: .*other shards") as raised:
        split(conn, backfill)
    assert raised.value.sqlstate == "TU124"


def test_a_range_that_is_under_way_is_taken_back_by_a_cancel(
    conn: Conn, connect: Connect, backfill: int
) -> None:
    split(conn, backfill)
    other = connect(autocommit=False)
    other.execute("SELECT tube_backfill_lock(%s)", [backfill])
    cursor = other.execute("SELECT 1")
    cursor.fetchall()
    conn.execute("SELECT tube_backfill_command(%s, 'cancel')", [backfill])
    with pytest.raises(psycopg.Error, match="is cancelled"):
        one_range(other, backfill, 0)
    other.rollback()
    assert pods(conn) == []


def test_a_column_that_may_change_without_a_touch_is_refused(conn: Conn) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute("CREATE TABLE public.x (id bigint PRIMARY KEY, a integer, b integer)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0, columns => '{a}')")
    for column, refused in (("b", True), ("a", False), ("id", False)):
        row = conn.execute("SELECT tube_backfill_create('t', 'public.x', %s, true)", [column]).fetchone()
        assert row is not None
        conn.execute("SELECT tube_backfill_lock(%s)", row)
        if refused:
            with pytest.raises(psycopg.Error, match="may change without a touch"):
                conn.execute("SELECT tube_backfill_split(%s)", row)
        else:
            assert split(conn, row[0]) == 1  # no rows
