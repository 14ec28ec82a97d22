"""Owners whose agent tries to abuse the session of whoever calls tube_sync."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.helpers.capture import scalar
from tests.helpers.waiting import wait_until
from tests.isolation.sessions import Session
from tests.sql.attackers import KEEPER, MALLORY, World, function_of
from tests.sql.test_attacks_owners import a_tree, partition_comes

REPLACE = "CREATE OR REPLACE FUNCTION {0} RETURNS boolean LANGUAGE plpgsql"
HOLD = "EXECUTE 'DECLARE stays CURSOR WITH HOLD FOR SELECT evil.grasp()'"
REPLACED = {
    "the caller's rights": f"{REPLACE} AS $$ BEGIN PERFORM evil.grasp(); RETURN true; END $$",
    "what is nobody's goes": f"{REPLACE} AS $$ BEGIN DROP OWNED BY tube_nobody; RETURN true; END $$",
    "a cursor that stays": f"{REPLACE} SECURITY DEFINER AS $$ BEGIN {HOLD}; RETURN true; END $$",
}


@pytest.mark.every_server
@pytest.mark.parametrize("made", REPLACED.values(), ids=REPLACED.keys())
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_agent_that_is_replaced_after_the_snapshot_of_tube_sync(
    world: World, level: str, made: str
) -> None:
    """The snapshot shows what it was, and the call would be of what it is."""
    world.admin.execute("GRANT tube_worker TO keeper")
    agent = a_tree(world)
    partition_comes(world, 1)
    with world.login(KEEPER) as keeper:
        keeper.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
        keeper.execute("SELECT FROM pg_class")
        world.run(MALLORY, made.format(agent))
        keeper.execute("SELECT tube.tube_sync()")
        keeper.execute("COMMIT")
    world.nobody_was_robbed()
    assert scalar(world.admin, "SELECT to_regproc('tube.tube_private_call_agent') IS NOT NULL")


@pytest.mark.every_server
@pytest.mark.parametrize(
    "left",
    [HOLD, "CREATE TEMP VIEW pg_stat_activity AS SELECT evil.grasp()", "EXECUTE 'PREPARE p AS SELECT 1'"],
    ids=["cursor", "view", "statement"],
)
def test_what_an_agent_reads_leaves_nothing_in_the_session(world: World, left: str) -> None:
    """By a function in the statistics of a table, which is run when the agent's query is planned."""
    a_tree(world)
    world.run(
        MALLORY,
        "CREATE FUNCTION evil.leave() RETURNS void LANGUAGE plpgsql AS $$ BEGIN"
        f" IF session_user <> 'mallory' THEN {left}; END IF; EXCEPTION"
        " WHEN duplicate_cursor OR duplicate_table OR duplicate_prepared_statement THEN NULL; END $$",
        "CREATE FUNCTION evil.calls(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS"
        " 'BEGIN PERFORM evil.leave(); RETURN 1; END'",
        "CREATE FUNCTION evil.left(integer) RETURNS integer LANGUAGE sql IMMUTABLE AS"
        " 'SELECT evil.calls(1) + coalesce($1, 0)'",
    )
    partition_comes(world, 1)
    world.run(MALLORY, "CREATE STATISTICS app.st ON (evil.left(day)), id FROM app.log_1", "ANALYZE app.log_1")
    with world.login("worker") as worker:
        heard: list[str] = []
        worker.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
        worker.execute("SELECT tube.tube_sync()")
        assert any("has left something in the session" in one for one in heard), heard
        cursors = "SELECT count(*) FROM pg_cursors WHERE is_holdable"
        assert scalar(worker, cursors) == 0
        assert scalar(worker, "SELECT to_regclass('pg_temp.pg_stat_activity')") is None
    world.nobody_was_robbed()


@pytest.mark.parametrize("blocks", [4, 5])
def test_an_agent_that_is_replaced_while_its_owner_is_looked_at(world: World, blocks: int) -> None:
    """What is looked at waits for locks on partitions; what was agreed to is not what is there after that."""
    agent = a_tree(world)
    capture = function_of(world, "capture", "log")
    a_part(world, capture, 0)
    with ExitStack() as stack:
        syncing = Session(
            stack.enter_context(world.login("worker")), stack.enter_context(world.login("postgres"))
        )
        gate = stack.enter_context(world.login(MALLORY))
        gate.execute(
            "SELECT pg_advisory_lock(hashtextextended('tube touch', 'app.log'::regclass::oid::bigint))"
        )
        running = syncing.start("SELECT tube.tube_sync()")
        assert running.blocked(by=None)
        for number in range(1, blocks + 1):
            following = stack.enter_context(world.login(MALLORY))
            a_part(world, capture, number)
            following.execute("BEGIN")
            following.execute(f"LOCK app.log_{number} IN ACCESS EXCLUSIVE MODE".encode())
            gate.execute("SELECT pg_advisory_unlock_all()" if number == 1 else "ROLLBACK")
            gate = following
            pid = following.info.backend_pid
            wait_until(lambda pid=pid: pid in running.blockers(), what="it waits for the next one")  # type: ignore[misc]
        world.run(MALLORY, REPLACED["a cursor that stays"].format(agent))
        gate.execute("ROLLBACK")
        running.rows()
    partition_comes(world, blocks + 1)
    world.admin.execute("GRANT tube_worker TO keeper")
    world.run(KEEPER, "SELECT tube.tube_sync()")
    world.nobody_was_robbed()


def a_part(world: World, capture: str, day: int) -> None:
    """A partition that comes with all its triggers."""
    table, call = f"app.log_{day}", f"FOR EACH STATEMENT EXECUTE FUNCTION {capture}()"
    old, new = "OLD TABLE AS old_table", "NEW TABLE AS new_table"
    world.run(
        MALLORY,
        "BEGIN",
        f"CREATE TABLE {table} PARTITION OF app.log FOR VALUES IN ({day})",
        f"CREATE TRIGGER i AFTER INSERT ON {table} REFERENCING {new} {call}",
        f"CREATE TRIGGER u AFTER UPDATE ON {table} REFERENCING {old} {new} {call}",
        f"CREATE TRIGGER d AFTER DELETE ON {table} REFERENCING {old} {call}",
        f"CREATE TRIGGER t BEFORE TRUNCATE ON {table} {call}",
        "COMMIT",
    )
