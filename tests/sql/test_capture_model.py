"""A writer that does anything, against a model of what the tube has to hold. No touch is missing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.pq import TransactionStatus

from tests.conftest import Servers
from tests.helpers.capture import TABLE, TUBE, Conn, asked, detach, make_tube, open_session, take
from tests.helpers.capture_model import PREDICATES, SPARE, Row, Rows, State

EXAMPLES = int(os.environ.get("PYTUBE_EXAMPLES", "10"))
PHASES = [Phase.explicit, Phase.generate] + ([Phase.shrink] if "PYTUBE_NO_SHRINK" not in os.environ else [])
AT_A_TIME = 20
"""Examples of one session: it keeps what it compiled of functions that are no more, and becomes slow."""

SHARDS = 3
TREE = f"""
-- Deferrable: keys may then be moved onto one another within a statement.
CREATE TABLE {TABLE} (id bigint, part int, n int, gone boolean, UNIQUE (id, part) DEFERRABLE)
    PARTITION BY LIST (part);
CREATE TABLE {TABLE}_0 PARTITION OF {TABLE} FOR VALUES IN (0);
CREATE TABLE {TABLE}_1 (gone boolean, n int, part int, junk int, id bigint);
ALTER TABLE {TABLE}_1 DROP junk;
ALTER TABLE {TABLE} ATTACH PARTITION {TABLE}_1 FOR VALUES IN (1);
CREATE TABLE {TABLE}_2 PARTITION OF {TABLE} FOR VALUES IN (2);
"""
DEEPEST = 3
SOAK_STEPS = 20_000
SOAK_EACH = 500

ids = st.integers(-2, 7)
rows_of_ids = st.lists(ids, min_size=1, max_size=8, unique=True)
new_ids = st.lists(ids, min_size=3, max_size=8, unique=True)
"""More than are deleted, so that most statements find several rows."""
parts = st.integers(0, SPARE)
leaf = st.none() | parts
"""The table that a statement names: None is the root."""


class Writer(RuleBasedStateMachine):
    """One session that writes; `conn` is set by the test."""

    conn: Conn
    done: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.state = State()
        self.saved: list[tuple[str, State]] = []

    def table(self, part: int | None) -> str:
        return TABLE if part is None else f"{TABLE}_{part}"

    def reached(self, keys: list[int], part: int | None) -> set[int]:
        """Those of the keys that a statement on this table of the tree finds."""
        return {key for key in self.state.here(keys) if part in (None, self.state.rows[key].part)}

    def in_tree(self, part: int | None) -> bool:
        return self.state.whole or part != SPARE

    def follow(self) -> None:
        """Have what DDL did followed, as workers do."""
        (done,) = self.conn.execute("SELECT tube_sync()").fetchone() or (None,)
        assert done in (0, int(self.state.attached))

    @initialize(predicate=st.sampled_from(sorted(PREDICATES)), columns=st.booleans())
    def start(self, predicate: str, columns: bool) -> None:
        if self.conn.execute(
            f"SELECT count(*) FROM pg_inherits WHERE inhparent = '{TABLE}'::regclass"
        ).fetchone() != (3,):
            self.conn.execute(f"ALTER TABLE {TABLE} ATTACH PARTITION {TABLE}_2 FOR VALUES IN (2)")
        self.attach(columns=columns)
        self.conn.execute(f"TRUNCATE {TABLE}")
        take(self.conn)
        self.change_predicate(predicate)

    # --- rows ---------------------------------------------------------------------------------

    @rule(keys=new_ids, part=parts, by_root=st.booleans(), n=st.integers(0, 5), gone=st.booleans())
    def insert(self, keys: list[int], part: int, by_root: bool, n: int, gone: bool) -> None:
        if not self.in_tree(part):
            return
        keys = self.state.free(keys)
        self.conn.execute(
            f"INSERT INTO {self.table(None if by_root else part)} (id, part, n, gone)"
            " SELECT u, %s, %s, %s FROM unnest(%s::bigint[]) AS u",
            (part, n, gone, keys),
        )
        new = {key: Row(part, n, gone) for key in keys}
        self.state.change({**self.state.rows, **new}, set(new))
        self.done["insert"] += 1

    @rule(keys=rows_of_ids, n=st.integers(0, 5))
    def merge(self, keys: list[int], n: int) -> None:
        keys = [key for key in keys if key not in self.state.apart]
        self.conn.execute(
            f"MERGE INTO {TABLE} AS t USING unnest(%s::bigint[]) AS u ON t.id = u WHEN MATCHED THEN"
            " UPDATE SET n = %s WHEN NOT MATCHED THEN INSERT (id, part, n, gone) VALUES (u, 0, %s, false)",
            (keys, n, n),
        )
        there, new = self.state.here(keys), set(self.state.free(keys))
        changed = {key: Row(row.part, n, row.gone) for key, row in self.state.rows.items() if key in there}
        if self.state.attached and new and there:
            self.state.loose |= there | new
        self.state.change({**self.state.rows, **changed}, there, update=True)
        self.state.change({**self.state.rows, **{key: Row(0, n, False) for key in new}}, new)
        self.done["merge"] += 1

    @rule(keys=rows_of_ids, part=leaf, n=st.sampled_from([0, 0, 1]), gone=st.none() | st.booleans())
    def update(self, keys: list[int], part: int | None, n: int, gone: bool | None) -> None:
        if not self.in_tree(part):
            return
        self.conn.execute(
            f"UPDATE {self.table(part)} SET n = n + %s, gone = coalesce(%s, gone) WHERE id = ANY (%s)",
            (n, gone, keys),
        )
        written = self.reached(keys, part)
        rows = dict(self.state.rows)
        for key in written:
            old = rows[key]
            rows[key] = Row(old.part, old.n + n, old.gone if gone is None else gone)
        self.state.change(rows, written, update=True)
        self.done["update"] += 1

    @rule(keys=rows_of_ids, shift=st.integers(-3, 3), gone=st.booleans(), part=leaf)
    def change_keys(self, keys: list[int], shift: int, gone: bool, part: int | None) -> None:
        """Some may move to another partition, too."""
        if not self.in_tree(part):
            return
        moved = {key: key + shift for key in self.reached(keys, part)}
        rows: Rows = {key: row for key, row in self.state.rows.items() if key not in moved}
        if any(new in rows or new in self.state.apart for new in moved.values()):
            return  # the statement would fail, or two rows have one id
        where = "part" if part is not None else "part * (part - 1)"
        self.conn.execute(
            f"UPDATE {self.table(part)} SET id = id + %s, gone = %s, part = {where} WHERE id = ANY (%s)",
            (shift, gone, keys),
        )
        if any(new not in moved for new in moved.values()):
            # It looks as that MERGE would.
            passes = PREDICATES[self.state.predicate]
            self.state.loose |= {key for key in moved if not passes(self.state.rows[key])}
        for old, new in moved.items():
            row = self.state.rows[old]
            rows[new] = Row(row.part if part is not None else row.part * (row.part - 1), row.n, gone)
        self.state.change(rows, set(moved) | set(moved.values()), update=True)
        self.done["key change"] += 1

    @rule(keys=rows_of_ids, part=leaf)
    def delete(self, keys: list[int], part: int | None) -> None:
        if not self.in_tree(part):
            return
        self.conn.execute(f"DELETE FROM {self.table(part)} WHERE id = ANY (%s)", (keys,))
        self.state.without(self.reached(keys, part))
        self.done["delete"] += 1

    @rule(part=leaf)
    def truncate(self, part: int | None) -> None:
        if not self.in_tree(part):
            return
        self.conn.execute(f"TRUNCATE {self.table(part)}")
        self.state.without(self.reached(list(self.state.rows), part))
        self.done["truncate"] += 1

    @rule(keys=rows_of_ids)
    def fail(self, keys: list[int]) -> None:
        """A statement that breaks off after it wrote rows leaves no touch."""
        statement = f"INSERT INTO {TABLE} SELECT u, 1, 1, false FROM unnest(%s::bigint[]) AS u"
        with self.conn.transaction(force_rollback=True):
            self.conn.execute(f"INSERT INTO {TABLE} VALUES (100, 1, 1, false)")
            with pytest.raises(psycopg.errors.UniqueViolation):
                self.conn.execute(statement, ([*keys, 100],))
        self.done["failing statement"] += 1

    # --- the tube and the tree ------------------------------------------------------------------

    @rule(predicate=st.sampled_from(sorted(PREDICATES)))
    def change_predicate(self, predicate: str) -> None:
        self.conn.execute(
            "SELECT tube_ensure_exists(%s, partitions, %s) FROM tube_registry", (TUBE, predicate)
        )
        self.state.predicate = predicate
        self.done["predicate change"] += 1

    @rule(partitions=st.integers(1, 4))
    def repartition(self, partitions: int) -> None:
        self.conn.execute("SELECT tube_ensure_exists(%s, %s)", (TUBE, partitions))
        self.done["repartition"] += 1

    @rule(columns=st.booleans())
    def attach(self, columns: bool) -> None:
        self.conn.execute(
            "SELECT tube_table_ensure_attached(%s, %s, 0, %s, columns => %s)",
            (TUBE, TABLE, SHARDS, ["n"] if columns else None),
        )
        self.state.attached = True
        self.state.columns = columns
        self.done["attach"] += 1

    @precondition(lambda self: self.state.attached)
    @rule()
    def detach(self) -> None:
        detach(self.conn)
        self.state.attached = False
        self.done["detach"] += 1

    @precondition(lambda self: self.state.whole)
    @rule()
    def detach_partition(self) -> None:
        self.conn.execute(f"ALTER TABLE {TABLE} DETACH PARTITION {TABLE}_2")
        self.follow()
        self.state.detach_spare()
        self.done["partition detach"] += 1

    @precondition(lambda self: not self.state.whole)
    @rule(keys=st.lists(ids, max_size=3, unique=True), n=st.integers(0, 5))
    def attach_partition(self, keys: list[int], n: int) -> None:
        """With rows that nobody saw come, while it was none of the tree."""
        keys = self.state.free(keys)
        self.conn.execute(
            f"INSERT INTO {TABLE}_2 (id, part, n, gone)"
            " SELECT u, 2, %s, false FROM unnest(%s::bigint[]) AS u",
            (n, keys),
        )
        self.state.apart |= {key: Row(SPARE, n, False) for key in keys}
        self.conn.execute(f"ALTER TABLE {TABLE} ATTACH PARTITION {TABLE}_2 FOR VALUES IN (2)")
        self.follow()
        self.state.attach_spare()
        self.done["partition attach"] += 1

    # --- transactions -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.saved) < DEEPEST)
    @rule()
    def begin_or_save(self) -> None:
        name = f"s{len(self.saved)}"
        self.conn.execute(f"SAVEPOINT {name}" if self.saved else "BEGIN")
        self.saved.append((name, self.state.copy()))
        self.done["savepoint" if len(self.saved) > 1 else "begin"] += 1

    @precondition(lambda self: self.saved)
    @rule(committed=st.booleans())
    def end(self, committed: bool) -> None:
        name, before = self.saved.pop()
        if self.saved:
            self.conn.execute(f"RELEASE {name}" if committed else f"ROLLBACK TO {name}")
        else:
            self.conn.execute("COMMIT" if committed else "ROLLBACK")
        if not committed:
            self.state = before
        self.done["commit" if committed else "rollback"] += 1

    @invariant()
    def the_tube_holds_exactly_these(self) -> None:
        if self.saved:
            return
        assert asked(self.conn) or not self.state.asks
        self.state.asks = False
        found = take(self.conn)
        written = sorted((touch.op, touch.id) for touch in found)
        assert self.state.allows(written), (written, sorted(self.state.touches), self.state.loose)
        assert all(touch.shard == touch.id % SHARDS for touch in found)
        self.state.touches.clear()
        self.state.loose.clear()

    def teardown(self) -> None:
        """What is open is committed, and looked at."""
        if self.conn.info.transaction_status is TransactionStatus.INTRANS:
            self.conn.execute("COMMIT")
            self.saved.clear()
            self.the_tube_holds_exactly_these()
        self.conn.execute("ROLLBACK")


def prepare(dsn: str) -> None:
    """A tube, and a table with partitions."""
    with writer(dsn) as conn:
        conn.execute(TREE)
        make_tube(conn, partitions=2)


@contextmanager
def writer(dsn: str) -> Iterator[Conn]:
    with open_session(dsn, client_encoding="utf8") as conn:
        conn.execute("SET client_min_messages = error")
        yield conn


def run(dsn: str, examples: int, steps: int) -> Counter[str]:
    """Let writers write, in a session of their own; how often each did what."""

    class Machine(Writer):
        done: ClassVar[Counter[str]] = Counter()

    with writer(dsn) as conn:
        Machine.conn = conn
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                phases=PHASES,
                suppress_health_check=list(HealthCheck),
            ),
        )
    return Machine.done


@pytest.mark.parametrize("version", [18, pytest.param("system", marks=pytest.mark.soak)])
def test_no_touch_is_missing_and_none_is_too_many(servers: Servers, version: int | str) -> None:
    with servers.get(version).database(installed=True) as dsn:  # type: ignore[arg-type]
        prepare(dsn)
        for first in range(0, EXAMPLES, AT_A_TIME):
            run(dsn, min(AT_A_TIME, EXAMPLES - first), 30)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_in_twenty_thousand_steps(dsn: str) -> None:
    """Each kind of step at least 500 times."""
    done: Counter[str] = Counter()
    prepare(dsn)
    for _ in range(80):
        done += run(dsn, AT_A_TIME, 100)
        if done.total() >= SOAK_STEPS and min(done.values()) >= SOAK_EACH:
            break
    assert done.total() >= SOAK_STEPS
    assert len(done) == 17
    assert min(done.values()) >= SOAK_EACH, done
