"""What operators do with pods and with parked keys, by one session."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.helpers.database import preparing
from tests.helpers.terms import (
    Claim,
    Conn,
    Term,
    acquire,
    fill,
    mark,
    marked_seqs,
    park,
    park_item,
    pods,
    release,
    scalar,
    touch,
    with_tube_of_two,
)

prepare = preparing(with_tube_of_two, "term")


@pytest.fixture
def term(conn: Conn) -> Term:
    """Partition 0 of 2."""
    return acquire(conn, Claim(partitions=2, partition=0))


def listed(conn: Conn, options: str = "") -> list[tuple[int, str]]:
    return conn.execute(f"SELECT seq, state FROM tube_pods_list('queue'{options})".encode()).fetchall()


def call(conn: Conn, name: str, options: str = "") -> Any:
    return scalar(conn, f"SELECT {name}('queue'{options})")


def ids(conn: Conn) -> list[list[int]]:
    return [row for (row,) in conn.execute("SELECT ids FROM tube.queue ORDER BY seq")]


def fail(conn: Conn, term: Term, key: int, attempts: int = 2, **more: Any) -> None:
    item = {"shard": 0, "id": str(key), "error": "not now", "attempts": attempts, "delay": 60, **more}
    conn.execute("SELECT tube_pods_fail(%s, %s, %s, %s, %s)", (*term.args, json.dumps([item])))


def audited(conn: Conn) -> list[tuple[str, dict[str, Any]]]:
    return conn.execute("SELECT action, details FROM tube_audit ORDER BY audit_id").fetchall()


def sqlstate(conn: Conn, statement: str) -> str | None:
    with pytest.raises(psycopg.Error) as refused:
        conn.execute(statement.encode())
    return refused.value.sqlstate


# --- pods ---


def test_pods_are_listed_in_processing_order_and_say_who_has_them(conn: Conn, term: Term) -> None:
    backfill = touch(conn, op="B")
    first, second = touch(conn, ids=(1, 2)), touch(conn, shard=1)
    mark(conn, term, 1)
    assert listed(conn) == [(first, "in flight"), (second, "waiting"), (backfill, "waiting")]
    assert listed(conn, ", 1") == [(second, "waiting")]
    assert listed(conn, f", NULL, {first}, {first}") == [(first, "in flight")]
    assert listed(conn, ", in_key => '2'") == [(first, "in flight")]
    assert listed(conn, ", in_shard => 1") == [(second, "waiting")]
    assert listed(conn, ", in_limit => 2") == [(first, "in flight"), (second, "waiting")]
    assert listed(conn, ", in_from => 9000000000000") == []
    release(conn, term)
    assert listed(conn, ", 0, in_limit => 1") == [(first, "left")]


def test_a_row_of_the_list(conn: Conn, term: Term) -> None:
    touch(conn, ids=range(150), shard=2)
    fail(conn, term, 7, shard=2)
    mark(conn, term)
    with conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        (row,) = cursor.execute("SELECT * FROM tube_pods_list('queue')").fetchall()
    assert (len(row["keys"]), row["key_count"], row["failures"]) == (100, 150, 1)
    assert (row["partition"], row["shard"], row["op"], row["client_id"]) == (0, 2, "U", "a client")
    assert row["control"] is None


def test_a_retry_finds_what_waits_behind_more_in_flight_than_it_may_take_at_once(
    conn: Conn, term: Term
) -> None:
    """0 says that nothing is left to retry, and what is in flight is the first of the queue."""
    touch(conn, ids=(1,))
    touch(conn, ids=(2,))
    mark(conn, term)
    waiting = touch(conn, ids=(3,))
    bounds = f", in_to => {waiting}, in_limit => 1"
    assert call(conn, "tube_pods_retry", bounds) == 1
    assert call(conn, "tube_pods_retry", bounds) == 0
    assert waiting not in pods(conn)


@pytest.mark.usefixtures("term")
def test_a_retried_pod_keeps_its_payload(conn: Conn) -> None:
    """Our worker has no use for it; a consumer that reads `tube_pods_sql` may."""
    conn.execute("""SELECT queue_touch(0, '{7}', 'T', '{"why": "by hand"}')""")
    assert call(conn, "tube_pods_retry") == 1
    assert scalar(conn, "SELECT payload FROM tube.queue") == {"why": "by hand"}


@pytest.mark.usefixtures("term")
def test_a_count_of_a_long_queue_spills_nothing_to_disk(conn: Conn) -> None:
    """It stands before each act, and the queue may be as large as the disk."""
    fill(conn, pods=5000)
    conn.execute("SET work_mem = '64kB'; SET temp_file_limit = '64kB'")
    assert scalar(conn, "SELECT pods FROM tube_pods_count('queue')") == 5000


@pytest.mark.usefixtures("term")
def test_a_control_pod_shows_its_type_and_not_its_payload(conn: Conn) -> None:
    conn.execute("""SELECT queue_touch(0, '{}', 'T', '{"type": "odd", "secret": "x"}')""")
    assert scalar(conn, "SELECT control FROM tube_pods_list('queue')") == "odd"
    assert conn.execute("SELECT pods, in_flight, control FROM tube_pods_count('queue')").fetchall() == [
        (1, 0, 1)
    ]
    assert call(conn, "tube_pods_ack") == 0
    assert call(conn, "tube_pods_retry") == 0
    assert len(pods(conn)) == 1


def test_a_retry_makes_new_pods_above_the_floors_of_a_live_worker(conn: Conn, term: Term) -> None:
    flying = touch(conn, ids=(1, 2))
    mark(conn, term)
    waiting = touch(conn, ids=(2, 3))
    assert marked_seqs(conn, term, floors=(waiting, 0)) == []
    assert call(conn, "tube_pods_retry", f", in_to => {waiting}") == 1
    assert call(conn, "tube_pods_retry", f", in_to => {waiting}") == 0
    assert flying in pods(conn), "what is in flight is left alone"
    assert waiting not in pods(conn)
    found = mark(conn, term, floors=(waiting, 0))
    assert [pod.ids for pod in found] == [[2, 3]]
    assert call(conn, "tube_pods_retry", ", in_key => '1'") == 1
    assert [pod.ids for pod in mark(conn, term, floors=(waiting, 0))] == [[1]], "but for a single key"
    assert audited(conn)[0] == ("pods retry", {"to": waiting, "pods": 1})


@pytest.mark.usefixtures("term")
def test_a_retry_of_one_key_touches_that_key(conn: Conn) -> None:
    touch(conn, ids=(1, 2))
    touch(conn, ids=(2, 3))
    assert call(conn, "tube_pods_retry", ", in_key => '2'") == 2
    assert ids(conn) == [[1, 2], [2, 3], [2]]


def test_an_acknowledgement_takes_pods_away_and_forgets_their_failures(conn: Conn, term: Term) -> None:
    first = touch(conn, ids=(1, 2))
    touch(conn, ids=(2,))
    fail(conn, term, 2)
    assert call(conn, "tube_pods_ack", ", in_key => '2'") == 2
    assert ids(conn) == [[1]]
    assert scalar(conn, "SELECT count(*) FROM tube_attempt") == 0
    assert call(conn, "tube_pods_ack", f", in_from => {first}, in_to => {first}") == 1
    assert pods(conn) == {}
    assert call(conn, "tube_pods_ack") == 0
    assert [action for action, _ in audited(conn)] == ["pods discard"] * 2


def test_what_is_in_flight_is_not_acknowledged_and_nothing_else_either(conn: Conn, term: Term) -> None:
    touch(conn)
    mark(conn, term)
    touch(conn, ids=(2,))
    assert sqlstate(conn, "SELECT tube_pods_ack('queue')") == "TU142"
    assert len(pods(conn)) == 2
    assert audited(conn) == []
    release(conn, term)
    assert call(conn, "tube_pods_ack") == 2


def test_a_reset_forgets_failures(conn: Conn, term: Term) -> None:
    for key in (1, 2, 3):
        fail(conn, term, key)
    fail(conn, term, 1, shard=2)
    assert call(conn, "tube_attempts_reset", ", 1") == 0
    assert call(conn, "tube_attempts_reset", ", in_shard => 0, in_key => '1'") == 1
    assert call(conn, "tube_attempts_reset", ", 0") == 3
    assert audited(conn)[0] == ("pods reset", {"shard": 0, "key": "1", "keys": 1})


@pytest.mark.parametrize("action", ["list", "count", "retry", "ack"])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("'no'", "TU102"),
        ("'queue', 2", "TU103"),
        ("'queue', 1, in_shard => 2", "TU106"),
        ("'queue', NULL, 5, 4", "22023"),
        ("'queue', in_key => 'x'", "22P02"),
    ],
)
@pytest.mark.each_value
@pytest.mark.usefixtures("term")
def test_bad_input_is_refused(conn: Conn, action: str, arguments: str, expected: str) -> None:
    assert sqlstate(conn, f"SELECT * FROM tube_pods_{action}({arguments})") == expected


@pytest.mark.usefixtures("term")
def test_many_pods_are_worked_on_in_pieces(conn: Conn) -> None:
    for key in range(5):
        touch(conn, shard=key, ids=(key,))
    assert call(conn, "tube_pods_ack", ", in_limit => 3") == 3
    assert call(conn, "tube_pods_ack", ", in_limit => 3") == 2
    assert call(conn, "tube_pods_ack", ", in_limit => 3") == 0


# --- failures ---


def test_failures_of_a_key_are_kept_until_it_is_delivered_or_parked(conn: Conn, term: Term) -> None:
    fail(conn, term, 7, 1)
    fail(conn, term, 7, 2)
    fail(conn, term, 8, 1)
    rows = conn.execute(
        "SELECT id, attempts, last_at > first_at, next_at > clock_timestamp() + interval '50 seconds'"
        " FROM tube_attempt ORDER BY id"
    ).fetchall()
    assert rows == [("7", 2, True, True), ("8", 1, False, True)]
    first_at = scalar(conn, "SELECT first_at FROM tube_attempt WHERE id = '7'")
    park(conn, term, park_item(7))
    assert scalar(conn, "SELECT first_at FROM tube_parked") == first_at
    conn.execute("SELECT tube_pods_unpark(%s, %s, %s, %s, '{0}', '{8}')", term.args)
    assert scalar(conn, "SELECT count(*) FROM tube_attempt") == 0


# --- parked keys ---


def test_a_limit_of_parked_keys_parks_none_beyond_it(conn: Conn, term: Term) -> None:
    statement = "SELECT tube_pods_park(%s, %s, %s, %s, %s, 2)"
    conn.execute(statement, (*term.args, json.dumps([park_item(1), park_item(2)])))
    conn.execute(statement, (*term.args, json.dumps([park_item(2, error="again")])))
    with pytest.raises(psycopg.Error) as refused:
        conn.execute(statement, (*term.args, json.dumps([park_item(3), park_item(4)])))
    assert refused.value.sqlstate == "TU141"
    assert scalar(conn, "SELECT count(*) FROM tube_parked") == 2
    call(conn, "tube_park_retry")
    conn.execute(
        statement, (*term.args, json.dumps([park_item(3)]))
    )  # those that are tried again don't count


def test_a_document_is_kept_apart_until_the_key_is_parked_anew(conn: Conn, term: Term) -> None:
    park(conn, term, park_item(7, document="eyJhIjoxfQ=="))
    assert scalar(conn, "SELECT document FROM tube_parked_document") == b'{"a":1}'
    park(conn, term, park_item(7, seq=2))
    assert scalar(conn, "SELECT count(*) FROM tube_parked_document") == 0


def test_parked_keys_are_chosen_by_shard_key_error_and_age(conn: Conn, term: Term) -> None:
    park(conn, term, park_item(1, error="Mapper: 100%_bad"), park_item(2, shard=2), park_item(3))
    conn.execute("UPDATE tube_parked SET parked_at = parked_at - interval '2 days' WHERE id = '3'")
    for options, expected in {
        "in_shard => 2": ["2"],
        "in_key => '3'": ["3"],
        "in_error => 'mapper: 100%_'": ["1"],
        "in_error => '1000'": [],
        "in_older => '1 day'": ["3"],
    }.items():
        rows = conn.execute(f"SELECT id FROM tube_park_list('queue', {options})".encode()).fetchall()
        assert [row for (row,) in rows] == expected, options
        assert scalar(conn, f"SELECT count FROM tube_park_count('queue', {options})") == len(expected)


@pytest.mark.parametrize(
    ("key_type", "kept", "given"),
    [
        ("bigint", "42", "042"),
        ("uuid", "0b1d8e1c-0000-4000-8000-00000000000a", "{0B1D8E1C-0000-4000-8000-00000000000A}"),
        ("text", "a b", "a b"),
    ],
)
def test_a_parked_key_and_a_pod_s_are_found_however_they_are_written(
    conn: Conn, key_type: str, kept: str, given: str
) -> None:
    conn.execute("SELECT tube_ensure_exists('queue', 1, key_type => %s::regtype)", (key_type,))
    conn.execute("SELECT tube_keys_put('queue', 0, 'U', ARRAY[%s])", (kept,))
    key = f", in_key => '{given}'"
    for name in ("tube_park_retry", "tube_park_drop"):
        conn.execute(
            "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
            " VALUES ('queue', 0, %s, 'U', 1, 'no', 1, 1) ON CONFLICT DO NOTHING",
            (kept,),
        )
        assert scalar(conn, f"SELECT id FROM tube_park_list('queue'{key})") == kept
        assert scalar(conn, f"SELECT count FROM tube_park_count('queue'{key})") == 1
        assert call(conn, name, key) == 1
    assert len(listed(conn, key)) == 2
    assert call(conn, "tube_pods_retry", key) == 2
    refused = {f"SELECT {name}('queue', in_key => 'x')" for name in ("tube_park_retry", "tube_park_drop")}
    refused |= {
        f"SELECT * FROM {name}('queue', in_key => 'x')" for name in ("tube_park_list", "tube_park_count")
    }
    for statement in refused if key_type != "text" else ():
        assert sqlstate(conn, statement) == "22P02"
    assert sqlstate(conn, "SELECT * FROM tube_park_list(in_key => '1')") == "22023"


def test_a_retry_touches_parked_keys_once(conn: Conn, term: Term) -> None:
    park(conn, term, *(park_item(key) for key in range(300)), park_item(7, shard=4))
    assert call(conn, "tube_park_retry", ", in_limit => 200") == 200
    assert call(conn, "tube_park_retry") == 101
    assert call(conn, "tube_park_retry") == 0
    found = [(pod.shard, key) for pod in mark(conn, term) for key in pod.ids]
    assert sorted(found) == [*((0, key) for key in range(300)), (4, 7)]
    assert scalar(conn, "SELECT count(*) FROM tube_parked WHERE retried_at IS NULL") == 0
    assert call(conn, "tube_park_retry", ", in_shard => 4, in_key => '7'") == 1
    park(conn, term, park_item(7, shard=4))
    assert call(conn, "tube_park_retry", ", in_shard => 4") == 1, "it failed again"
    assert audited(conn)[0] == (
        "park retry",
        {"count": 200, "keys": [f"0/{key}" for key in sorted(map(str, range(300)))[:10]]},
    )


@pytest.mark.parametrize("act", ["tube_park_retry", "tube_park_drop"])
def test_what_has_changed_since_it_was_counted_is_left_alone(conn: Conn, term: Term, act: str) -> None:
    park(conn, term, park_item(1), park_item(2), park_item(3), park_item(4))
    seen = scalar(conn, "SELECT seen FROM tube_park_count('queue')")
    park(conn, term, park_item(2, error="parked again"), park_item(5, error="new"))
    assert call(conn, "tube_park_retry", ", in_key => '3'") == 1
    options = f", in_seen => '{seen}', in_limit => 1"
    assert [call(conn, act, options) for _ in range(3)] == [1, 1, 0]
    done = "retried_at IS NOT NULL" if act == "tube_park_retry" else "false"
    left = conn.execute(f"SELECT id FROM tube_parked WHERE NOT ({done}) ORDER BY id".encode()).fetchall()
    assert left == [("2",), ("5",)] if act == "tube_park_retry" else [("2",), ("3",), ("5",)]


def test_pieces_in_one_transaction_go_on_where_the_last_one_was(conn: Conn, term: Term) -> None:
    park(conn, term, park_item(1), park_item(2))
    seen = scalar(conn, "SELECT seen FROM tube_park_count('queue')")
    options = f", in_seen => '{seen}', in_limit => 1"
    with conn.transaction():
        assert [call(conn, "tube_park_retry", options) for _ in range(3)] == [1, 1, 0]
        assert call(conn, "tube_park_drop", options) == 0, "they were retried since"


def test_the_age_of_keys_is_that_of_the_count(conn: Conn, term: Term) -> None:
    park(conn, term, park_item(1), park_item(2))
    conn.execute("UPDATE tube_parked SET parked_at = parked_at - interval '2 days' WHERE id = '1'")
    found = "SELECT count, before FROM tube_park_count('queue', in_older => '1 day')"
    count, before = conn.execute(found.encode()).fetchone() or (0, None)
    assert count == 1
    assert call(conn, "tube_park_drop", f", in_before => '{before}'") == 1
    assert scalar(conn, "SELECT id FROM tube_parked") == "2"
    assert "before" in audited(conn)[0][1]


@pytest.mark.parametrize("number", [17, 2**32 - 1, 2**32 + 17, 5 * 2**32])
def test_the_transaction_of_a_row_is_known_after_xids_have_begun_over(conn: Conn, number: int) -> None:
    """In a server that has had so many transactions; no test can wait for them."""
    body = scalar(conn, "SELECT prosrc FROM pg_proc WHERE proname = 'tube_private_full_xid'")
    body = body.replace("pg_snapshot_xmax(pg_current_snapshot())", f"'{number + 1}'::xid8")
    assert int(scalar(conn, body.replace("xid::text", f"'{number % 2**32}'"))) == number


def test_a_parked_control_pod_is_put_back(conn: Conn, term: Term) -> None:
    park(conn, term, park_item(None, op="T", payload={"type": "odd"}))
    assert call(conn, "tube_park_retry") == 1
    assert conn.execute("SELECT op, ids, payload FROM tube.queue").fetchall() == [("T", [], {"type": "odd"})]
    assert scalar(conn, "SELECT count(*) FROM tube_parked") == 0


def test_a_drop_forgets_keys_and_touches_nothing(conn: Conn, term: Term) -> None:
    park(conn, term, park_item(1, error="quotes a secret"), park_item(2, document="e30="))
    assert call(conn, "tube_park_drop", ", in_error => 'a secret'") == 1
    assert call(conn, "tube_park_drop") == 1
    assert call(conn, "tube_park_drop") == 0
    assert pods(conn) == {}
    assert audited(conn)[0] == ("park discard", {"by_error": True, "count": 1, "keys": ["0/1"]})


@pytest.mark.parametrize("name", ["tube_park_retry", "tube_park_drop"])
@pytest.mark.usefixtures("term")
def test_an_unknown_tube_or_a_bad_limit_is_refused(conn: Conn, name: str) -> None:
    assert sqlstate(conn, f"SELECT {name}('no')") == "TU102"
    assert sqlstate(conn, f"SELECT {name}('queue', in_limit => 0)") == "22023"


@pytest.mark.parametrize("act", ["tube_pods_ack", "tube_attempts_reset"])
def test_failures_are_forgotten_however_the_key_is_written(conn: Conn, term: Term, act: str) -> None:
    touch(conn, ids=(7,))
    fail(conn, term, 7)
    assert call(conn, act, ", in_key => '007'") == 1
    assert scalar(conn, "SELECT count(*) FROM tube_attempt") == 0
