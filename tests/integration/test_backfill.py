"""`pytube backfill`: processes that are paused, killed, resumed; no worker takes part."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pytube.embedded.postgres import Postgres
from tests.conftest import Connect
from tests.helpers import cli
from tests.helpers.capture import open_session
from tests.helpers.database import preparing
from tests.helpers.forked import Piped
from tests.helpers.waiting import LIMIT, wait_until

Connection = psycopg.Connection[Any]

ROWS = 20_000
START = ("backfill", "start", "--tube", "items", "--json")
HALTED = ("--chunk", "8", "--backlog", "8")
"""Has a client insert 2,000 rows, and then wait for a worker, which never comes: it can't end by itself."""


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY, n int)")
        conn.execute(
            "INSERT INTO public.items SELECT g, nullif(g %% 10, 0) FROM generate_series(1, %s) g", (ROWS,)
        )
        conn.execute("SELECT tube_ensure_exists('items', 2)")
        conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', shard => 0, shards => 4)")


prepare = preparing(prepared, "items")


@pytest.fixture
def items(conn: Connection) -> Connection:
    """A table of 20,000 rows, spread over 4 shards of a tube of 2 partitions."""
    return conn


class Client:
    """A `pytube` process."""

    def __init__(self, dsn: str, *arguments: str) -> None:
        self.process = cli.start(*arguments, config=None, PYTUBE_DSN=dsn)

    def end(self, code: int = 0) -> list[dict[str, Any]]:
        """Wait until it ends with `code`; the lines that it wrote."""
        out, err = self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == code, err
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def clients(dsn: str) -> Iterator[Any]:
    started: list[Piped] = []

    def start(*arguments: str) -> Client:
        client = Client(dsn, *arguments)
        started.append(client.process)
        return client

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def row(conn: Connection) -> dict[str, Any]:
    """The newest backfill, as everyone can see it."""
    with conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute("SELECT * FROM tube_backfill_list() LIMIT 1").fetchone() or {}


def until(conn: Connection, what: str, **wanted: Any) -> None:
    """Until the newest backfill looks so; a text is looked for within."""

    def holds() -> bool:
        now = row(conn)
        return bool(now) and all(
            value in str(now[key]) if isinstance(value, str) else now[key] == value
            for key, value in wanted.items()
        )

    wait_until(holds, what=lambda: f"{what}: {row(conn)}")


def until_halted(conn: Connection) -> None:
    """Until a client that was started as `HALTED` waits."""
    until(conn, "it waits", rows_done=2000, note="waits: 8 backfill pods or more wait in the tube (limit 8)")


def touched(conn: Connection) -> list[int]:
    """The ids of all backfill pods, ascending."""
    return [key for (key,) in conn.execute("SELECT unnest(ids) FROM items_tube ORDER BY 1").fetchall()]


@pytest.fixture(autouse=True)
def _view(items: Connection) -> None:
    """Our tube's table is called as the attached one."""
    items.execute("CREATE VIEW public.items_tube AS SELECT * FROM tube.items WHERE op = 'B'")


def test_start_shows_how_far_it_is(items: Connection, clients: Any) -> None:
    lines = clients(*START, "--order-col", "n").end()
    assert [line["state"] for line in lines][-2:] == ["inserting", "delivering"]
    assert (lines[-1]["rows_done"], lines[-1]["rows_total"]) == (ROWS, ROWS)
    assert touched(items) == list(range(1, ROWS + 1))


def test_a_killed_client_is_gone_on_from_where_it_was(items: Connection, clients: Any) -> None:
    client = clients(*START, *HALTED)
    until_halted(items)
    client.process.kill()
    client.process.wait()
    until(items, "nobody works on it", pid=None)
    assert len(touched(items)) == row(items)["rows_done"] == 2000
    lines = clients("backfill", "resume", "--tube", "items", "--json").end()
    assert lines[-1]["state"] == "delivering"
    assert touched(items) == list(range(1, ROWS + 1)), "each once"


def test_an_interrupted_client_says_how_to_go_on(items: Connection, clients: Any) -> None:
    client = clients(*START, *HALTED)
    until_halted(items)
    client.process.send_signal(signal.SIGINT)
    _, err = client.process.communicate(timeout=LIMIT)
    assert "pytube backfill resume items" in err
    assert client.process.returncode == 130


def test_two_clients_on_one_backfill(items: Connection, connect: Connect, clients: Any) -> None:
    writer = connect(autocommit=False)
    writer.execute("INSERT INTO public.items VALUES (%s, 1)", (ROWS + 1,))
    first = clients(*START)
    until(items, "it waits for the writer", note="waits for transactions to end")
    (told,) = clients("backfill", "resume", "--tube", "items", "--json").end()
    assert "another process is running backfill" in told["message"]
    _, err = clients(*START).process.communicate(timeout=LIMIT)
    assert "is being backfilled for tube 'items' already" in err
    assert first.process.poll() is None
    writer.rollback()
    first.end()
    assert touched(items) == list(range(1, ROWS + 1))


def test_pause_resume_and_cancel(dsn: str, items: Connection, clients: Any) -> None:
    client = clients(*START, *HALTED)
    until_halted(items)
    cli.run("backfill", "pause", "--tube", "items", dsn=dsn)
    assert "inserting, paused" in cli.run("backfill", "status", dsn=dsn).stdout
    lines = clients("backfill", "resume", "--tube", "items", "--table", "public.items", "--json").end()
    assert "another process" in lines[-1]["message"]
    (status,) = cli.run_json("backfill", "status", "--tube", "items", dsn=dsn)
    assert (status["rows_done"], status["rows_delivered"]) == (2000, 0), "all wait for a worker"
    items.execute("DELETE FROM tube.items WHERE op = 'B'")
    until(items, "it goes on", rows_done=4000)
    cli.run("backfill", "cancel", "--tube", "items", dsn=dsn)
    assert "was cancelled" in client.process.communicate(timeout=LIMIT)[1]
    assert touched(items) == []
    (status,) = cli.run_json("backfill", "status", "--tube", "items", dsn=dsn)
    assert (status["state"], status["rows_delivered"]) == ("cancelled", None)
    assert "no backfill" in cli.run("backfill", "pause", "--tube", "items", dsn=dsn, code=2).output


def test_a_newer_one_supersedes(items: Connection, clients: Any) -> None:
    first = clients(*START, *HALTED, "--order-col", "n")
    until_halted(items)
    clients(*START, "--supersede").end()
    assert "was superseded" in first.process.communicate(timeout=LIMIT)[1]
    assert touched(items) == list(range(1, ROWS + 1)), "nothing of the first"


def test_it_waits_for_open_and_prepared_transactions(
    items: Connection, connect: Connect, clients: Any
) -> None:
    writer = connect(autocommit=False)
    writer.execute("INSERT INTO public.items VALUES (%s, 1)", (ROWS + 1,))
    prepared = connect(autocommit=False)
    prepared.tpc_begin("a transaction")
    prepared.execute("INSERT INTO public.items VALUES (%s, 1)", (ROWS + 2,))
    prepared.tpc_prepare()
    reader = connect(autocommit=False)
    reader.execute("SELECT 1 FROM public.items")
    client = clients(*START)
    until(items, "it names both", note=f"pid {writer.info.backend_pid}", state="waiting")
    until(items, "it names both", note="prepared transaction 'a transaction'")
    late = connect(autocommit=False)
    late.execute("INSERT INTO public.items VALUES (%s, 1)", (ROWS + 3,))
    writer.commit()
    until(items, "it waits for the other", note="waits for transactions to end: prepared transaction")
    prepared.tpc_commit()
    client.end()
    assert touched(items) == list(range(1, ROWS + 3)), "not what began later: its own touch comes"
    late.rollback()
    reader.rollback()


def test_the_backlog_slows_it(items: Connection, clients: Any) -> None:
    client = clients(*START, *HALTED)
    until_halted(items)
    items.execute("DELETE FROM tube.items WHERE op = 'B'")
    until(items, "it goes on", rows_done=4000)
    client.process.kill()


def test_a_replica_that_is_behind_slows_it(
    items: Connection, clients: Any, postgres: Postgres, tmp_path: Path
) -> None:
    replica = subprocess.Popen(
        [
            *(str(postgres.bin("pg_receivewal")), "-D", str(tmp_path), "-s", "1", "--no-sync"),
            # however long it is stopped, it stays a replica
            *("-d", make_conninfo(postgres.dsn(), options="-c wal_sender_timeout=0")),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        streams = (
            "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND write_lsn IS NOT NULL"
        )
        wait_until(lambda: items.execute(streams).fetchone() == (1,), what="the replica streams")
        replica.send_signal(signal.SIGSTOP)
        items.execute(
            "CREATE TABLE public.ballast AS SELECT repeat(md5(g::text), 30) FROM generate_series(1, 9000) g"
        )
        warned: list[str] = []
        items.add_notice_handler(lambda notice: warned.append(str(notice.message_primary)))
        start = "SELECT tube_backfill_create('items', 'public.items', supersede => true)"
        items.execute(start)
        assert [text for text in warned if "replicas" in text] == [
            "backfills do not mind how far replicas are behind: tube_owner may not look at them"
        ]
        items.execute("GRANT pg_monitor TO tube_owner")
        warned.clear()
        items.execute(start)
        assert [text for text in warned if "replicas" in text] == []
        items.execute("SELECT tube_backfill_command(max(backfill_id), 'cancel') FROM tube_backfill")
        client = clients(*START, "--replica-behind", "2")
        until(items, "it waits", note="MB of WAL behind (limit 2 MB)")
        assert row(items)["rows_done"] == 0
        replica.send_signal(signal.SIGCONT)
        client.end()
    finally:
        items.execute("REVOKE pg_monitor FROM tube_owner")
        replica.kill()
        replica.wait()


def test_all_root_tables_or_none(dsn: str, items: Connection) -> None:
    items.execute("CREATE TABLE public.others (id bigint PRIMARY KEY)")
    items.execute("INSERT INTO others VALUES (-1), (-2)")
    items.execute("SELECT tube_table_ensure_attached('items', 'public.others', 9)")
    items.execute("CREATE TABLE public.notes (id bigint)")
    items.execute("SELECT tube_table_ensure_attached('items', 'public.notes', 9)")
    first = cli.run("backfill", "start", "--tube", "items", "--table", "public.others", dsn=dsn)
    assert "2 of 2 rows" in first.output
    # refused as a whole: the one that would have been begun first is not under way
    assert "already" in cli.run("backfill", "start", "--tube", "items", dsn=dsn, code=2).output
    states = [(r["tbl"], r["state"]) for r in cli.run_json("backfill", "status", dsn=dsn)]
    assert sorted(states) in (
        [("public.items", "cancelled"), ("public.others", "delivering")],
        [("public.others", "delivering")],
    )
    cli.run("backfill", "start", "--tube", "items", "--supersede", dsn=dsn)
    assert touched(items) == [-2, -1, *range(1, ROWS + 1)]
    assert "there is no tube 'nope'" in cli.run("backfill", "start", "--tube", "nope", dsn=dsn, code=2).output
