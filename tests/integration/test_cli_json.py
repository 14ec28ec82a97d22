"""`--json`: it parses, and holds the facts of the table."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.helpers.capture import open_session
from tests.helpers.cli import run, run_json
from tests.helpers.database import preparing

Cell = str | Callable[[dict[str, Any]], object]

CONFIG = '[postgres]\ndsn = "${PYTUBE_DSN}"\n[tube.t.sink]\ntype = "jsonl"\npath = "t.jsonl"\n'


def time_of(key: str) -> Callable[[dict[str, Any]], object]:
    """A cell with a moment."""
    return lambda row: row[key] and datetime.fromisoformat(row[key]).isoformat(sep=" ", timespec="seconds")


@dataclass(frozen=True, slots=True)
class Table:
    """How the cells of a list follow from its JSON."""

    cells: Mapping[str, Cell | None]
    """By heading: the key of the same value, or how the cell is made of a row; None: rounded for people."""
    more: frozenset[str] = frozenset()
    """Keys whose values are in no cell of their own."""


TABLES = {
    "tube list": Table(
        {
            **{name: name for name in ("tube", "partitions", "predicate", "shard", "shards")},
            "table": "tbl",
            "id column": "id_col",
            "keys": "key_type",
        },
        frozenset({"root", "key_cols", "shard_by", "companion_of"}),
    ),
    "park list": Table(
        {
            **{name: name for name in ("tube", "shard", "id", "op", "attempts", "error")},
            "first": time_of("first_at"),
            "since": time_of("parked_at"),
            "retried": time_of("retried_at"),
        },
        frozenset({"park_id", "seq", "payload", "epoch", "first_at", "parked_at", "retried_at"}),
    ),
    "pods list t": Table(
        {
            **{name: name for name in ("seq", "op", "shard", "state")},
            "part": "partition",
            "by": "client_id",
            "failing": "failures",
            "since": time_of("ts"),
            "keys": lambda row: row["control"] or " ".join(row["keys"]),
        },
        frozenset({"ts", "keys", "key_count", "control"}),
    ),
    "outbox list": Table(
        {
            "outbox": "outbox",
            "partitions": "partitions",
            "table": "tbl",
            "values": "value_type",
            "adopted": lambda row: "yes" if row["adopted"] else "no",
            "wakes workers": lambda row: "yes" if row["wakes"] else "no",
        },
        frozenset({"adopted", "wakes"}),
    ),
    "outbox parked list": Table(
        {
            **{name: name for name in ("outbox", "id", "topic", "key", "attempts", "error")},
            "key is": lambda row: "waiting" if row["behind"] else "held" if row["hold"] else "free",
            "since": time_of("parked_at"),
        },
        frozenset({"behind", "hold", "parked_at", "epoch"}),
    ),
    "backfill status": Table(
        {
            "number": "backfill_id",
            "tube": "tube",
            "table": "tbl",
            "state": "state",
            "note": "note",
            **dict.fromkeys(("rows inserted", "delivered", "rows/s", "time left", "worked on by pid")),
        },
        frozenset(
            {
                *("rows_done", "rows_total", "rows_delivered", "rate", "seconds_left", "pid", "by_worker"),
                *("paused", "created_at", "ended_at", "start_seq", "order_col", "shards_left"),
            }
        ),
    ),
    "audit": Table(
        {
            "when": time_of("done_at"),
            "who": "done_by",
            "client": "client",
            "action": "action",
            "tube": "tube",
            "details": None,
        },
        frozenset({"done_at", "details", "audit_id"}),
    ),
    "spark jobs": Table(
        {
            "job": "job_id",
            "state": "state",
            "units in": "units_done",
            "of": "units",
            "ids": "ids",
            "tubes": lambda row: ", ".join(row["tubes"]),
        },
        frozenset(
            {
                *("tubes", "kind", "rows", "pods", "backfill_id"),
                *("created_at", "last_at", "ended_at", "begun_by"),
            }
        ),
    ),
    "status": Table(
        {
            "tube": "tube",
            "part": "partition",
            "parked": "parked",
            "state": "state",
            "epoch": "epoch",
            **dict.fromkeys(("waiting", "backfill", "documents", "lag", "leader", "renewed ago")),
        },
    ),
}


ROWS = (
    "CREATE TABLE public.goods (id bigint PRIMARY KEY); INSERT INTO public.goods VALUES (1), (2);"
    " SELECT tube_ensure_exists('t'); SELECT tube_table_ensure_attached('t', 'public.goods', 0);"
    " SELECT outbox_ensure_exists('o');"
    " INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
    " VALUES ('t', 0, '8', 'U', 1, 'bad', 3, 1), ('t', 0, '9', 'U', 1, 'worse', 1, 1);"
    " INSERT INTO tube_outbox_parked (outbox, id, topic, key, slot, error, attempts, epoch, hold, behind)"
    " VALUES ('o', 17, 'orders', 'k', 0, 'too big', 2, 1, true, false),"
    " ('o', 18, 'orders', 'k', 0, 'waits', 1, 1, true, true);"
    " INSERT INTO tube_job (job_id, tubes, kind, fingerprint, units)"
    " VALUES ('j', '{t}', 'ranges', 'x', 3)"
)


def _filled(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute(ROWS)
    run("touch", "t", "public.goods", "1", "2", dsn=dsn)
    run("backfill", "start", "t", "--in-worker", dsn=dsn)


prepare = preparing(_filled, "filled")


@pytest.fixture
def filled(dsn: str) -> str:
    """A database where each list has rows."""
    return dsn


@pytest.mark.parametrize("command", TABLES)
def test_a_table_and_its_json_have_the_same_facts(command: str, filled: str) -> None:
    table = TABLES[command]
    heading, *lines = run(*command.split(), dsn=filled).stdout.splitlines()
    rows = run_json(*command.split(), dsn=filled)
    headings = heading.split("\t")
    assert set(headings) == set(table.cells)
    if command == "status":
        lines = lines[: lines.index("")]
        assert [line.split("\t")[0] for line in lines] == ["t"]
    else:
        assert rows
    assert len(lines) == len(rows)
    for row, line in zip(rows, lines, strict=True):
        cells = dict(zip(headings, line.split("\t"), strict=True))
        for name, cell in table.cells.items():
            if cell is not None:
                value = row[cell] if isinstance(cell, str) else cell(row)
                assert cells[name] == ("-" if value is None else str(value)), (name, row)
        if command != "status":
            assert set(row) == {cell for cell in table.cells.values() if isinstance(cell, str)} | table.more


ACTS: list[tuple[str, object]] = [
    (
        "tube create new",
        {"tube": "new", "partitions": 1, "predicate": None, "key_type": "bigint", "done": "created"},
    ),
    ("tube rebase t --epoch 7", {"tube": "t", "epoch": 1007}),
    ("tube acknowledge t", {"tube": "t", "acknowledged": 0}),
    ("sink accept t", {"tube": "t", "accepted": False}),
    ("outbox acknowledge o", {"outbox": "o", "acknowledged": 0}),
    ("touch t public.goods 1", {"tube": "t", "table": "public.goods", "touched": 1}),
    ("pods reset t", {"tube": "t", "keys": 0}),
    ("pods retry t --yes", {"tube": "t", "key": None, "retried": 1}),
    ("pods discard t --yes", {"tube": "t", "key": None, "discarded": 1}),
    (
        "touch t public.goods --query 'SELECT id FROM public.goods'",
        {"tube": "t", "table": "public.goods", "touched": 2},
    ),
    ("park retry t 8 --yes", {"tube": "t", "retried": 1}),
    ("park retry t --key 8 --yes", {"tube": "t", "retried": 1}),
    ("pods retry t 1 --yes", {"tube": "t", "key": "1", "retried": 1}),
    ("park discard t --key 9 --yes", {"tube": "t", "discarded": 1}),
    ("outbox parked discard o 17 --yes", {"outbox": "o", "discarded": 1}),
    ("pause t --drain 0", {"tube": "t", "partition": None, "seconds": None, "reason": None, "in_flight": []}),
    ("resume t", {"tube": "t", "partition": None, "resumed": False, "still_paused": []}),
    ("tube detach t public.goods", {"tube": "t", "table": "public.goods", "detached": True}),
    ("tube drop t --force", {"tube": "t", "done": "dropped"}),
]


@pytest.mark.parametrize(("command", "printed"), ACTS, ids=[command for command, _ in ACTS])
def test_an_act_prints_its_result(command: str, printed: object, filled: str) -> None:
    assert run_json(*shlex.split(command), dsn=filled) == printed


def test_a_question_leaves_stdout_to_the_json(filled: str) -> None:
    """Without an answer there is no result, and no row of a table either."""
    for command in ("pods discard t", "park discard t", "outbox parked discard o 17"):
        asked = run(*command.split(), "--json", dsn=filled, code=2)
        assert asked.stdout == ""
        assert "?" in asked.stderr


def test_a_wait_that_is_over_too_early(filled: str) -> None:
    late = run_json("wait", "t", "--timeout", "0", dsn=filled, code=1)
    assert (late["is_delivered"], late["tubes"]) == (False, ["t"])
    assert "t" in late["reason"]


def test_a_queue_that_is_paused_is_named_without_its_kind(filled: str) -> None:
    assert run("pause", "o", dsn=filled).stdout == "o is paused\n"
    assert run("resume", "o", dsn=filled).stdout == "o is resumed\n"


def test_one_parked_record(filled: str) -> None:
    (row,) = [row for row in run_json("outbox", "parked", "list", dsn=filled) if row["id"] == 17]
    assert run_json("outbox", "parked", "show", "o", "17", dsn=filled) == row
    said = run("outbox", "parked", "show", "o", "17", dsn=filled).stdout.splitlines()
    assert {"topic: orders", "key is: held", "error: too big"} <= set(said)
    assert "no parked record 99" in run("outbox", "parked", "show", "o", "99", dsn=filled, code=2).stderr


def test_attaching(dsn: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
    run("tube", "create", "t", dsn=dsn)
    first = run_json("tube", "attach", "t", "public.goods", dsn=dsn)
    assert (first["done"], first["column"], first["shards"], first["next"]) == ("attached", "id", 1, None)
    again = run_json("tube", "attach", "t", "public.goods", dsn=dsn)
    assert (again["done"], again["changes"]) == ("unchanged", [])
    more = run_json("tube", "attach", "t", "public.goods", "--shards", "4", "--force", dsn=dsn)
    assert (more["done"], more["changes"], more["shards"]) == ("changed", ["shards 0 -> 0 to 3"], 4)
    assert more["next"] == "pytube backfill start t --table public.goods"


def test_backfills(filled: str) -> None:
    (row,) = run_json("backfill", "status", dsn=filled)
    number = row["backfill_id"]
    expected = {"backfill_id": number, "table": "public.goods"}
    assert run_json("backfill", "pause", "t", dsn=filled) == [expected | {"done": "paused"}]
    assert run_json("backfill", "cancel", "t", dsn=filled) == [expected | {"done": "canceled"}]


def test_installing(bare_dsn: str) -> None:
    done = run_json("install", dsn=bare_dsn)
    assert (done["done"], done["schema"], len(done["messages"])) == ("installed", "tube", 2)
    assert run_json("upgrade", dsn=bare_dsn)["messages"] == done["messages"]
    gone = {"done": "uninstalled", "schema": "tube", "messages": ["uninstalled from the schema tube"]}
    assert run_json("uninstall", dsn=bare_dsn) == gone


def test_declared_documents(dsn: str, conn: psycopg.Connection, tmp_path: Path) -> None:
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, name text)")
    (tmp_path / "pytube.toml").write_text(
        CONFIG + '[document.t]\ntable = "public.goods"\nfields = ["name"]\n'
    )
    (done,) = run_json("apply", dsn=dsn, folder=tmp_path)
    assert (done["document"], done["backfills"]) == ("t", [])
    assert [step["action"] for step in done["steps"]] == ["make", "attach", "declare"]
    assert done["result"].startswith("t: applied")
    shown = run_json("document", "show", "t", dsn=dsn, folder=tmp_path)
    assert (shown["document"], shown["paths"]) == ("t", [])
    assert run_json("document", "show", "t", "--query", dsn=dsn, folder=tmp_path)["query"] == shown["query"]
