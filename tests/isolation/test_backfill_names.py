"""A backfill that waits for its table reads that one, and nothing that has its name by then."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import TABLE, TUBE, Conn, ops, scalar, set_up
from tests.isolation.conftest import NewSession

SWAP = """
ALTER TABLE public.item RENAME TO item_before;
CREATE VIEW public.item AS SELECT 1::bigint AS id, 'x'::text AS value, false AS deleted;
GRANT SELECT ON public.item TO PUBLIC
"""


@pytest.mark.parametrize("call", ["step3", "collect", "split"])
def test_a_table_whose_name_another_one_gets(conn: Conn, session: NewSession, call: str) -> None:
    set_up(conn)
    conn.execute(f"INSERT INTO {TABLE} (id) VALUES (7)".encode())
    assert ops(conn) == [("I", 7)]
    start = scalar(conn, "SELECT tube_backfill_step1()")
    number = scalar(conn, "SELECT tube_backfill_create(%s, %s)", (TUBE, TABLE)) if call != "step3" else 0
    calls = {
        "step3": f"SELECT tube_backfill_step3('{start}', '{TUBE}', '{TABLE}', 'id')",
        "collect": f"SELECT tube_backfill_collect({number})",
        "split": f"SELECT tube_backfill_split({number}, 2)",
    }
    owner, reader = session(), session()
    owner.begin()
    owner.run(SWAP)
    if number:
        reader.run(f"SELECT tube_backfill_lock({number})")
    reading = reader.start(calls[call])
    assert reading.blocked(by=owner)
    owner.commit()
    with pytest.raises(psycopg.Error) as refused:
        reading.rows()
    assert refused.value.sqlstate == "40001"
    assert 1 not in {key for _, key in ops(conn)}
