"""`pytube outbox …`, and what `pytube status` and `pytube doctor` say of outboxes."""

from __future__ import annotations

import pytest

from pytube.cli import context, output
from tests.helpers.cli import run, run_json
from tests.helpers.outbox_sql import (
    ADOPTED,
    GOHARVEST_TABLE,
    OUTBOX,
    lead,
    make_outbox,
    mark,
    park,
    parked_ids,
    stash,
)
from tests.helpers.terms import Conn, make_tube, scalar


def indexes(conn: Conn, table: str) -> int:
    return int(scalar(conn, "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass", (table,)))


def test_an_outbox_is_made_changed_and_dropped(conn: Conn, dsn: str) -> None:
    def outbox(*arguments: str, code: int = 0) -> str:
        done = run("outbox", *arguments, dsn=dsn, code=code)
        return (done.stderr if code else done.stdout).strip()

    assert outbox("create", OUTBOX, "--partitions", "2", "--value-type", "bytea") == (
        "outbox orders is created: table tube.orders, partitions 2, values bytea; writers wake workers"
    )
    assert outbox("create", OUTBOX) == "outbox orders is unchanged"
    assert "an outbox can't have 0 partitions" in outbox("create", OUTBOX, "--partitions", "0", code=2)
    # More records than the SQL builds an index for by itself.
    conn.execute(
        "INSERT INTO orders (kafka_topic, kafka_key, kafka_value)"
        " SELECT 't', i::text, convert_to(repeat('x', 1000), 'UTF8') FROM generate_series(1, 5000) AS i"
    )
    assert outbox("create", OUTBOX, "--partitions", "3") == "outbox orders is changed: partitions 2 -> 3"
    assert indexes(conn, "tube.orders") == 2, "the index for 3, and the primary key"
    assert "TU109" not in outbox("drop", OUTBOX, code=2)
    assert "records that wait: 5000 (" in outbox("drop", OUTBOX, code=2)
    assert "--force" in outbox("drop", OUTBOX, code=2)
    assert outbox("drop", OUTBOX, "--force") == "outbox orders is dropped"
    assert "there is no outbox 'orders'" in outbox("drop", OUTBOX, code=2)
    assert outbox("list") == "outbox\tpartitions\ttable\tvalues\tadopted\twakes workers"
    make_tube(conn, "t")
    assert "'t' is a tube, not an outbox" in outbox("create", "t", code=2)


def test_a_table_is_adopted_with_its_index_and_let_go(conn: Conn, dsn: str) -> None:
    conn.execute(GOHARVEST_TABLE)
    adopted = ("outbox", "adopt", OUTBOX, ADOPTED)
    assert run(*adopted, "--partitions", "2", dsn=dsn).stdout.startswith(
        "outbox orders is adopted: table public.outbox, partitions 2, values text; writers do not wake work"
    )
    assert indexes(conn, ADOPTED) == 2
    assert run(*adopted, "--wake", dsn=dsn).stdout == "outbox orders is changed: writers wake workers\n"
    assert run_json(*adopted, dsn=dsn)["done"] == "unchanged"
    assert run_json("outbox", "list", dsn=dsn) == [
        {
            "outbox": OUTBOX,
            "partitions": 2,
            "tbl": ADOPTED,
            "value_type": "text",
            "adopted": True,
            "wakes": True,
        }
    ]
    assert run_json(*adopted, "--no-wake", dsn=dsn)["done"] == "changed"
    assert (
        run("outbox", "drop", OUTBOX, dsn=dsn).stdout
        == "outbox orders is dropped; its table public.outbox stays\n"
    )
    assert indexes(conn, ADOPTED) == 1


def test_parked_records_are_listed_retried_and_discarded(conn: Conn, dsn: str) -> None:
    make_outbox(conn)
    ids = [stash(conn, key=str(number)) for number in range(4)]
    term = lead(conn)
    mark(conn, term)
    park(conn, term, *ids[:3], hold=True)
    park(conn, term, ids[3])
    rows = run_json("outbox", "parked", "list", OUTBOX, dsn=dsn)
    assert {row["id"] for row in rows} == set(ids)
    assert "too bad" in run("outbox", "parked", "list", dsn=dsn).stdout
    refused = run("outbox", "parked", "retry", OUTBOX, str(ids[0]), "99999", dsn=dsn, code=2)
    assert f"outbox '{OUTBOX}' has no parked record 99999" in refused.stderr
    assert run_json("outbox", "parked", "retry", OUTBOX, str(ids[0]), dsn=dsn) == {
        "outbox": OUTBOX,
        "retried": 1,
    }
    assert (
        run_json("outbox", "parked", "retry", OUTBOX, "--topic", "t", "--key", "1", dsn=dsn)["retried"] == 1
    )
    assert (
        "discarded: 1\n" in run("outbox", "parked", "discard", OUTBOX, str(ids[2]), "--yes", dsn=dsn).stdout
    )
    assert run_json("outbox", "parked", "retry", OUTBOX, "--all", dsn=dsn)["retried"] == 1
    assert run_json("outbox", "parked", "list", dsn=dsn) == []
    for arguments in ((), ("1", "--all")):
        refused = run("outbox", "parked", "retry", OUTBOX, *arguments, dsn=dsn, code=2)
        assert "which records? Give ids, --topic or --key; or --all alone" in refused.stderr
    assert "there is no outbox 'none'" in run("outbox", "parked", "list", "none", dsn=dsn, code=2).stderr


def test_discarding_shows_what_it_means_and_asks(
    conn: Conn, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_outbox(conn)
    ids = [stash(conn, key=str(number)) for number in range(2)]
    term = lead(conn)
    mark(conn, term)
    park(conn, term, *ids)
    chosen = [str(one) for one in ids]
    monkeypatch.setattr(context, "has_people", lambda: True)
    asked = run("outbox", "parked", "discard", OUTBOX, *chosen, dsn=dsn, code=2)
    assert asked.stdout.count("too bad") == 2
    assert f"discard 2 parked records of outbox {OUTBOX}? [y/N]" in asked.stderr
    refused = run("outbox", "parked", "discard", OUTBOX, *chosen, "99999", "--yes", dsn=dsn, code=2).stderr
    assert "outbox 'orders' has no parked record 99999; `pytube outbox parked list orders` lists" in refused
    assert parked_ids(conn) == ids
    assert (
        "there is no outbox 'none'" in run("outbox", "parked", "discard", "none", "1", dsn=dsn, code=2).stderr
    )
    discarded = run_json("outbox", "parked", "discard", OUTBOX, *chosen, "--yes", dsn=dsn)
    assert discarded == {"outbox": OUTBOX, "discarded": 2}


def park_held(conn: Conn, behind: int) -> tuple[list[int], list[int]]:
    """Three failed records, one of them of another topic, and so many that wait behind the first one."""
    make_outbox(conn)
    failed = [stash(conn, key="a"), stash(conn, key="b")]
    waiting = [stash(conn, key="a") for _ in range(behind)]
    other = stash(conn, key="a", topic="other")
    term = lead(conn)
    mark(conn, term)
    park(conn, term, *failed, other, hold=True)
    park(conn, term, *waiting, behind=True)
    conn.execute("UPDATE tube_outbox_parked SET error = '' WHERE behind")
    conn.execute("UPDATE tube_outbox_parked SET error = 'the latest' WHERE id = %s", (failed[1],))
    conn.execute(
        "UPDATE tube_outbox_parked SET parked_at = now() - interval '1 hour' WHERE id IN (%s, %s)",
        (failed[0], other),
    )
    return failed, waiting


def test_status_counts_no_tubes(conn: Conn, dsn: str) -> None:
    make_outbox(conn)
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute(
        "CREATE OR REPLACE FUNCTION tube_ids_waiting() RETURNS TABLE ("
        "tube text, partition integer, ids bigint, sampled boolean) LANGUAGE plpgsql "
        "AS $$ BEGIN RAISE 'tubes are counted'; END $$"
    )
    assert {row["outbox"] for row in run_json("outbox", "status", dsn=dsn)} == {OUTBOX}


def test_records_that_wait_behind_a_failed_one_are_told_apart(conn: Conn, dsn: str) -> None:
    """More of them than a list looks at, and all of them later."""
    failed, _ = park_held(conn, 120)
    (row,) = run_json("outbox", "status", OUTBOX, dsn=dsn)
    assert row["parked_error"] == "the latest"
    assert (row["parked"], row["parked_failed"], row["parked_behind"]) == (123, 3, 120)
    for command in (["status"], ["outbox", "status"]):
        said = run(*command, dsn=dsn).output
        assert "123 records parked (3 failed, 120 wait behind); the latest error: the latest: pytube" in said
        assert "the records behind are then sent" in said
        assert "on_poison" not in said, "a held key keeps its order"
    listed = run("outbox", "parked", "list", OUTBOX, "--limit", "5", dsn=dsn)
    cells = [line.split("\t") for line in listed.stdout.splitlines()[1:]]
    assert [(line[1], line[4], line[7]) for line in cells[:1]] == [(str(failed[1]), "held", "the latest")]
    assert [line[4] for line in cells] == ["held"] * 3 + ["waiting"] * 2
    assert cells[-1][7] == "none: it waits behind a failed record of its key"
    assert "parked: 3 failed, 120 wait behind\n" in listed.stderr
    assert "if retried" not in listed.stderr


def test_discarding_a_topic_deletes_no_record_that_only_waits(
    conn: Conn, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, waiting = park_held(conn, 3)
    chosen = ("outbox", "parked", "discard", OUTBOX, "--topic", "t")
    monkeypatch.setattr(context, "has_people", lambda: True)
    asked = run(*chosen, dsn=dsn, code=2).stderr
    assert f"discard 2 parked records of outbox {OUTBOX}, and send the 3 records behind them?" in asked
    one = run("outbox", "parked", "discard", OUTBOX, str(waiting[0]), dsn=dsn, code=2).stderr
    assert "discard 1 parked record of outbox orders, 1 of which did not fail and only waits behind" in one
    assert run_json(*chosen, "--yes", dsn=dsn)["discarded"] == 2
    left = [id_ for (id_,) in conn.execute("SELECT id FROM tube.orders WHERE kafka_topic = 't' ORDER BY id")]
    assert left == waiting
    assert not set(parked_ids(conn)) & set(waiting), "they are sent"


def test_a_retry_that_breaks_the_order_of_a_key_is_told_before(conn: Conn, dsn: str) -> None:
    make_outbox(conn)
    ids = [stash(conn, key="a"), stash(conn, key=None)]
    term = lead(conn)
    mark(conn, term)
    park(conn, term, ids[1])
    for is_told in (False, True):
        if is_told:
            park(conn, term, ids[0])
        for command in (["status"], ["outbox", "status"], ["outbox", "parked", "list"]):
            said = run(*command, dsn=dsn).output
            assert ('on_poison = "skip"' in said) == is_told, command
            assert ("are then sent after later records of their keys" in said) == is_told, command


def test_status_has_a_section_for_outboxes(conn: Conn, dsn: str) -> None:
    make_outbox(conn, partitions=2)
    stash(conn)
    lead(conn, 1, 2)
    rows = run_json("outbox", "status", dsn=dsn)
    assert [row["waiting"] for row in rows] in ([0, 1], [1, 0])
    assert [(row["parked"], row["parked_is_exact"]) for row in rows] == [(0, True)] * 2
    assert [row["state"] for row in rows] == ["free", "leads"]
    assert run_json("outbox", "status", OUTBOX, dsn=dsn)[0]["outbox"] == OUTBOX
    assert "there is no outbox 'none'" in run("outbox", "status", "none", dsn=dsn, code=2).stderr
    said = run("status", dsn=dsn).stdout.splitlines()
    assert said[0].split("\t")[:3] == ["outbox", "part", "waiting"]
    assert len(said) == 3
    make_tube(conn, "t")
    said = run("status", dsn=dsn).stdout.splitlines()
    assert [line.partition("\t")[0] for line in said] == ["tube", "t", "", "outbox", OUTBOX, OUTBOX]
    (of_tube,) = run_json("status", dsn=dsn)
    assert of_tube["tube"] == "t"
    # Programs rely on these.
    both = (
        "partition waiting waiting_is_exact parked lag leader epoch leads_for renewed_ago state sink_down"
        " sink_down_for failing failing_terms failing_for paused"
    )
    assert set(rows[0]) == {
        *both.split(),
        *["outbox", "parked_is_exact", "problem", "parked_error", "resting", "host", "unverified"],
        *["parked_failed", "parked_behind", "parked_overtaken"],
    }
    assert set(of_tube) == {
        *both.split(),
        *[
            "tube",
            "parked_is_exact",
            "backfill",
            "backfill_is_exact",
            "documents",
            "documents_is_exact",
            "control",
            "control_is_exact",
            "backfill_lag",
            "election",
            "source_down",
        ],
        *["source_down_for", "paused_kind", "paused_for", "sink_emptied_for", "unverified", "sample"],
        *["parked_error", "hindered"],
    }
    assert run("status", "--tube", "t", dsn=dsn).stdout.count("\n") == 2
    refused = run("status", "--tube", OUTBOX, dsn=dsn, code=2)
    assert "'orders' is an outbox, not a tube: pytube outbox status orders" in refused.stderr


@pytest.mark.parametrize("command", ["status", "outbox status"])
def test_an_outbox_that_can_not_be_looked_at_is_no_empty_one(conn: Conn, dsn: str, command: str) -> None:
    conn.execute(GOHARVEST_TABLE)
    conn.execute("SELECT outbox_adopt('orders', 'public.outbox')")
    conn.execute(f"DROP TABLE {ADOPTED}")
    said = run(*command.split(), dsn=dsn)
    assert "orders\t0\t?\t" in said.stdout
    assert "orders partition 0: not looked at: " in said.output


def test_the_doctor_says_what_an_outbox_lacks(conn: Conn, dsn: str) -> None:
    conn.execute(GOHARVEST_TABLE)
    conn.execute("SELECT outbox_adopt('orders', 'public.outbox', 2)")
    make_outbox(conn, "own")
    checks = [
        (check["level"], check["finding"])
        for check in run_json("doctor", dsn=dsn)
        if check["subject"] in ("outbox orders", "outbox own")
    ]
    assert checks == [
        ("ok", "2 partitions, table public.outbox (adopted)"),
        ("warn", "it has no index for its 2 partitions, so each mark reads the records of all"),
        ("warn", "writers of public.outbox do not wake workers, which poll"),
        ("ok", "1 partition, table tube.own (its own)"),
    ]
    conn.execute(f"ALTER TABLE {ADOPTED} ENABLE ROW LEVEL SECURITY")
    id_ = stash(conn)
    term = lead(conn, partitions=2)
    if not mark(conn, term):
        term = lead(conn, 1, 2)
        mark(conn, term)
    park(conn, term, id_)
    found = [check["finding"] for check in run_json("doctor", dsn=dsn, code=1)]
    assert "row-level security of public.outbox could hide records" in found
    assert [one for one in found if one.startswith("1 record parked, one of them: ")]
    conn.execute(f"DROP TABLE {ADOPTED}")
    assert "its table was dropped" in {check["finding"] for check in run_json("doctor", dsn=dsn, code=1)}


def test_a_list_says_how_many_it_leaves_out(conn: Conn, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_outbox(conn)
    ids = [stash(conn, key=str(number)) for number in range(5)]
    term = lead(conn)
    mark(conn, term)
    park(conn, term, *ids)
    few = run("outbox", "parked", "list", OUTBOX, "--limit", "2", dsn=dsn)
    assert len(few.stdout.splitlines()) == 3
    assert few.stderr.startswith("not shown: 3; a larger --limit shows them\n")
    assert len(run_json("outbox", "parked", "list", "--limit", "2", dsn=dsn)) == 2
    assert "not shown" not in run("outbox", "parked", "list", "--limit", "5", dsn=dsn).stderr
    for _ in range(3):
        conn.execute("SELECT tube_pause(%s, reason => 'to look')", (OUTBOX,))
    assert "not shown: 2;" in run("audit", "--limit", "1", dsn=dsn).stderr
    make_tube(conn, "t")
    conn.execute("SELECT t_touch(0, ARRAY[n::bigint], 'T') FROM generate_series(1, 4) AS n")
    assert "not shown: 3;" in run("pods", "list", "--tube", "t", "--limit", "1", dsn=dsn).stderr
    monkeypatch.setattr(output, "_COUNTED", 2)
    assert "not shown: 2 or more;" in run("outbox", "parked", "list", "--limit", "1", dsn=dsn).stderr
