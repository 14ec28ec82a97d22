"""Who reads the ids of a backfill, and which table they are read from."""

from __future__ import annotations

import psycopg
import pytest

from tests.helpers.capture import TABLE, TUBE, Conn, ops, scalar, set_up
from tests.isolation.conftest import NewSession

IDS = "SELECT count(*) FROM pg_class WHERE relname LIKE 'tube_backfill_ids_%' AND relkind = 'r'"


class Scene:
    """A backfill of which one pod is inserted, who works on it, and a dump that reads its ids."""

    def __init__(self, session: NewSession) -> None:
        self.worker, self.dump, self.admin = session(), session(), session()
        run = self.worker.run
        run("CREATE TABLE public.items (id bigint PRIMARY KEY)")
        run("INSERT INTO public.items SELECT generate_series(1, 1000)")
        run("SELECT tube_ensure_exists('t')")
        run("SELECT tube_table_ensure_attached('t', 'public.items', 0)")
        self.number = int(run("SELECT tube_backfill_create('t', 'public.items')")[0][0])
        run("SELECT tube_backfill_lock(%s)", (self.number,))
        run("SELECT tube_backfill_collect(%s)", (self.number,))
        run("SELECT tube_backfill_chunk(%s, 1)", (self.number,))
        self.dump.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self.dump.run(f"LOCK TABLE tube.tube_backfill_ids_{self.number} IN ACCESS SHARE MODE")

    def has_ids(self) -> bool:
        return self.admin.run(IDS) == [(1,)]

    def dumped(self) -> None:
        self.dump.run("ROLLBACK")


@pytest.fixture
def scene(session: NewSession) -> Scene:
    return Scene(session)


def test_a_dump_holds_up_neither_the_last_chunk_nor_its_sequel(scene: Scene) -> None:
    last = scene.worker.start("SELECT (tube_backfill_chunk(%s, 1000)).state", (scene.number,))
    assert last.value() == "delivering"
    assert scene.has_ids()
    assert scene.admin.start("SELECT tube_backfill_tidy()").value() == 1
    scene.dumped()
    assert scene.admin.run("SELECT tube_backfill_tidy()") == [(0,)]
    assert not scene.has_ids()
    scene.worker.run("SELECT tube_backfill_unlock(%s)", (scene.number,))


def test_a_dump_does_not_hold_up_who_cancels(scene: Scene) -> None:
    cancel = scene.admin.start("SELECT (tube_backfill_command(%s, 'cancel')).state", (scene.number,))
    assert cancel.value() == "cancelled"
    assert scene.has_ids()
    scene.dumped()
    assert scene.admin.run("SELECT tube_backfill_tidy()") == [(0,)]
    assert not scene.has_ids()


def test_a_dump_does_not_hold_up_who_supersedes(scene: Scene) -> None:
    again = "SELECT tube_backfill_create('t', 'public.items', supersede => true)"
    newer = scene.admin.start(again).value()
    assert scene.has_ids()
    scene.dumped()
    assert scene.admin.start(again).value() == newer + 1
    assert not scene.has_ids(), "who begins another one tidies up"


def test_a_tube_that_is_called_so_is_left_alone(scene: Scene) -> None:
    number = scene.number
    scene.admin.run("SELECT tube_backfill_command(%s, 'cancel')", (number,))
    scene.dumped()
    assert scene.admin.run("SELECT tube_backfill_tidy()") == [(0,)]
    scene.admin.run("SELECT tube_ensure_exists(%s)", (f"tube_backfill_ids_{number}",))
    assert scene.admin.run("SELECT tube_backfill_tidy()") == [(0,)]
    with pytest.raises(psycopg.Error, match="already exists"):
        scene.admin.run(f"CREATE TABLE tube.tube_backfill_ids_{number} ()")
    scene.admin.run("SELECT tube_ensure_absent('t')")
    assert scene.admin.run(f"SELECT count(*) FROM tube.tube_backfill_ids_{number}") == [(0,)]


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
