"""`pytube outbox pump`."""

from __future__ import annotations

import json
import os
import signal
import threading

from tests.helpers.cli import run
from tests.helpers.outbox_sql import OUTBOX, make_outbox
from tests.helpers.terms import Conn, scalar
from tests.helpers.waiting import wait_until


def records(conn: Conn) -> int:
    return int(scalar(conn, f"SELECT count(*) FROM {OUTBOX}"))


def test_it_writes_what_it_is_told(conn: Conn, dsn: str) -> None:
    make_outbox(conn)
    told = ("--rate", "0", "--batch", "7", "--keys", "3", "--size", "20", "--headers", "2", "--topic", "t")
    *_, total = run("outbox", "pump", OUTBOX, *told, "--duration", "0.1", dsn=dsn).stdout.splitlines()
    _, written, transactions, _, _ = total.split("\t")
    assert int(written) == records(conn) == 7 * int(transactions) > 0
    rows = conn.execute(
        "SELECT kafka_key, array_agg(split_part(kafka_value, ' ', 1)::integer ORDER BY id), count(*)::integer"
        f" FROM {OUTBOX} WHERE kafka_topic = 't' AND length(kafka_value) = 20"
        " AND cardinality(kafka_header_keys) = 2 GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert rows == [
        (f"key-{key}", list(range(1, count + 1)), count) for key, (_, _, count) in enumerate(rows)
    ]
    assert len(rows) == 3
    assert int(scalar(conn, f"SELECT count(DISTINCT xmin::text) FROM {OUTBOX}")) == int(transactions)


def test_a_signal_ends_it_between_transactions(conn: Conn, dsn: str) -> None:
    make_outbox(conn)

    def interrupt() -> None:
        wait_until(lambda: records(conn) > 0, what="it writes")
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    lines = run("outbox", "pump", OUTBOX, "--transactions", "50", "--json", dsn=dsn).stdout.splitlines()
    thread.join()
    assert json.loads(lines[-1])["records"] == records(conn) > 0
    assert signal.getsignal(signal.SIGINT) is before


def test_an_outbox_that_is_not_there(conn: Conn, dsn: str) -> None:
    assert "'none'" in run("outbox", "pump", "none", "--duration", "1", dsn=dsn, code=2).stderr
    assert conn.info.dbname
