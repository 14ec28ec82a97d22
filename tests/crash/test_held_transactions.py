"""Transactions that are open for the whole run: delivery goes on as fast, and theirs are delivered too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Servers
from tests.crash.fleet import Fleet
from tests.crash.load import KEYS, Load, make_table

ROUNDS = 4
PODS = 2500
"""Pods of one id in a round."""
ENTRIES_A_LOOK = 200
"""Index entries that a look in vain may read; while nothing is vacuumed, a purged pod leaves two."""
LOOKS = 40
LATE = KEYS + 1
"""The id of the row that is written first and committed last."""

ONE_BY_ONE = """
DO $$ BEGIN
    FOR k IN 1..{pods} LOOP UPDATE public.items SET n = n + 1 WHERE id = k; END LOOP;
END $$
"""
IN_BULK = "UPDATE public.items SET n = n + 1"
READ = (
    "SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = 'tube' AND relname = 'items'"
)


Hold = Callable[[Fleet], AbstractContextManager[None]]


@pytest.fixture
def fleet(servers: Servers, tmp_path: Path) -> Iterator[Fleet]:
    """On a server where transactions can be prepared."""
    with servers.get(18).database(installed=True) as dsn:
        make_table(dsn, "items", 4)
        with Fleet(dsn, tmp_path) as fleet:
            yield fleet


@contextmanager
def open_writer(fleet: Fleet) -> Iterator[None]:
    """It has written a pod."""
    with psycopg.connect(fleet.dsn) as holder:
        holder.execute("INSERT INTO public.items VALUES (%s, 0, 'late')", (LATE,))
        yield


@contextmanager
def prepared_writer(fleet: Fleet) -> Iterator[None]:
    """It has written a pod, and belongs to no session."""
    with psycopg.connect(fleet.dsn) as holder:
        holder.execute("INSERT INTO public.items VALUES (%s, 0, 'late')", (LATE + 1,))
        holder.execute("PREPARE TRANSACTION 'late'")
    yield
    with psycopg.connect(fleet.dsn, autocommit=True) as other:
        other.execute("COMMIT PREPARED 'late'")


@contextmanager
def foreign_holder(fleet: Fleet) -> Iterator[None]:
    """It holds a transaction id in another database of the server."""
    with psycopg.connect(fleet.dsn, dbname="postgres") as holder:
        holder.execute("SELECT pg_current_xact_id()")
        yield


def deliver(fleet: Fleet, change: str) -> None:
    """Change rows, and wait for delivery."""
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        connection.execute(change)
    fleet.wait_until_drained()


def wait_for_cheap_looks(fleet: Fleet) -> None:
    """Until looks for pods do not go through all that was purged; nothing is vacuumed meanwhile."""
    seen = fleet.query(READ)[0]

    def are_cheap() -> bool:
        nonlocal seen
        now = fleet.query(READ)[0]
        looks, entries = now[0] - seen[0], now[1] - seen[1]
        if looks < LOOKS:
            return False
        seen = now
        return bool(entries < looks * ENTRIES_A_LOOK)

    fleet.wait_until(are_cheap, "looks for pods are cheap")


def test_delivery_goes_on_at_its_pace_and_the_late_ones_arrive(fleet: Fleet) -> None:
    goes_on(fleet, [open_writer, prepared_writer, foreign_holder])


@pytest.mark.soak
@pytest.mark.parametrize("held", [open_writer, prepared_writer, foreign_holder])
def test_one_at_a_time(fleet: Fleet, held: Hold) -> None:
    goes_on(fleet, [held])


def goes_on(fleet: Fleet, holds: list[Hold]) -> None:
    """Deliver pods of one id and of hundreds while transactions are held, then see theirs arrive."""
    late = sum(held is not foreign_holder for held in holds)
    fleet.start(1)
    fleet.wait_for_leaders({1})
    fleet.wait_until_drained()
    with ExitStack() as stack:
        for held in holds:
            stack.enter_context(held(fleet))
        for _ in range(ROUNDS):
            deliver(fleet, ONE_BY_ONE.format(pods=PODS))
        deliver(fleet, IN_BULK)
        wait_for_cheap_looks(fleet)
        with Load(fleet.dsn):
            before = fleet.sink_lines()
            fleet.wait_until(lambda: fleet.sink_lines() > before + 100, "others' documents arrive")
        fleet.wait_until_drained()
        assert late_ones(fleet) == 0
    fleet.wait_until(lambda: late_ones(fleet) == late, "the late rows arrive")
    fleet.wait_until_drained()
    assert fleet.terminate() == [0]
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def late_ones(fleet: Fleet) -> int:
    """How many of the late rows the sink was given."""
    return fleet.sink.read_bytes().count(b'"late"')
