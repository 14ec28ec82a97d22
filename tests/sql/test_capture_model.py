"""A writer that does anything, against a model of what the tube has to hold. No touch is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.conftest import Servers
from tests.helpers.capture import TABLE, Conn, attach, make_tube, open_session, take

EXAMPLES = int(os.environ.get("PYTUBE_EXAMPLES", "25"))
SHARDS = 3

ids = st.integers(-2, 5)
rows_of_ids = st.lists(ids, min_size=1, max_size=5, unique=True)


@dataclass(frozen=True)
class Row:
    """A row of the table, but for its id."""

    n: int
    gone: bool


PREDICATES: dict[str, Callable[[Row], bool]] = {
    "": lambda _row: True,
    "NOT gone": lambda row: not row.gone,
    "n > 2": lambda row: row.n > 2,
}


@dataclass
class State:
    """The table, the predicate and the touches, as they are to be."""

    rows: dict[int, Row] = field(default_factory=dict)
    predicate: str = ""
    touches: list[tuple[str, int]] = field(default_factory=list)

    def copy(self) -> State:
        return State(dict(self.rows), self.predicate, list(self.touches))

    def inside(self) -> set[int]:
        passes = PREDICATES[self.predicate]
        return {key for key, row in self.rows.items() if passes(row)}

    def change(self, rows: dict[int, Row], written: set[int]) -> None:
        """One statement that wrote the rows that had, or now have, the ids `written`."""
        before = self.inside()
        self.rows = rows
        after = self.inside()
        for key in written:
            if key in before or key in after:
                op = "U" if key in before and key in after else "I" if key in after else "D"
                self.touches.append((op, key))


class Writer(RuleBasedStateMachine):
    """One session that writes; `conn` is set by the test."""

    conn: Conn

    def __init__(self) -> None:
        super().__init__()
        self.state = State()
        self.saved: list[tuple[str, State]] = []

    @initialize(predicate=st.sampled_from(sorted(PREDICATES)))
    def start(self, predicate: str) -> None:
        self.conn.execute(f"TRUNCATE {TABLE}")
        take(self.conn)
        self.change_predicate(predicate)

    @rule(keys=rows_of_ids, n=st.integers(0, 5), gone=st.booleans())
    def insert(self, keys: list[int], n: int, gone: bool) -> None:
        self.conn.execute(
            f"INSERT INTO {TABLE} SELECT u, %s, %s FROM unnest(%s::bigint[]) AS u"
            f" WHERE u NOT IN (SELECT id FROM {TABLE})",
            (n, gone, keys),
        )
        new = {key: Row(n, gone) for key in keys if key not in self.state.rows}
        self.state.change({**self.state.rows, **new}, set(new))

    @rule(keys=rows_of_ids, n=st.integers(0, 5))
    def upsert(self, keys: list[int], n: int) -> None:
        self.conn.execute(
            f"MERGE INTO {TABLE} AS t USING unnest(%s::bigint[]) AS u ON t.id = u"
            " WHEN MATCHED THEN UPDATE SET n = %s WHEN NOT MATCHED THEN INSERT VALUES (u, %s, false)",
            (keys, n, n),
        )
        rows = {key: Row(n, self.state.rows[key].gone if key in self.state.rows else False) for key in keys}
        self.state.change({**self.state.rows, **rows}, set(rows))

    @rule(keys=rows_of_ids, n=st.integers(0, 5), gone=st.none() | st.booleans())
    def update(self, keys: list[int], n: int, gone: bool | None) -> None:
        self.conn.execute(
            f"UPDATE {TABLE} SET n = n + %s, gone = coalesce(%s, gone) WHERE id = ANY (%s)", (n, gone, keys)
        )
        rows = dict(self.state.rows)
        written = set(keys) & set(rows)
        for key in written:
            old = rows[key]
            rows[key] = Row(old.n + n, old.gone if gone is None else gone)
        self.state.change(rows, written)

    @rule(keys=rows_of_ids, shift=st.integers(-3, 3), gone=st.booleans())
    def change_keys(self, keys: list[int], shift: int, gone: bool) -> None:
        moved = {key: key + shift for key in keys if key in self.state.rows}
        rows = {key: row for key, row in self.state.rows.items() if key not in moved}
        if any(new in rows for new in moved.values()):
            return  # the statement would fail
        self.conn.execute(
            f"UPDATE {TABLE} SET id = id + %s, gone = %s WHERE id = ANY (%s)", (shift, gone, keys)
        )
        rows.update({new: Row(self.state.rows[old].n, gone) for old, new in moved.items()})
        self.state.change(rows, set(moved) | set(moved.values()))

    @rule(keys=rows_of_ids)
    def delete(self, keys: list[int]) -> None:
        self.conn.execute(f"DELETE FROM {TABLE} WHERE id = ANY (%s)", (keys,))
        rows = {key: row for key, row in self.state.rows.items() if key not in keys}
        self.state.change(rows, set(self.state.rows) - set(rows))

    @rule(keys=rows_of_ids)
    def fail(self, keys: list[int]) -> None:
        """A statement that breaks off after it wrote rows leaves no touch."""
        statement = f"INSERT INTO {TABLE} SELECT u, 1, false FROM unnest(%s::bigint[]) AS u"
        with self.conn.transaction(force_rollback=True):
            self.conn.execute(f"INSERT INTO {TABLE} VALUES (100, 1, false)")
            with pytest.raises(psycopg.errors.UniqueViolation):
                self.conn.execute(statement, ([*keys, 100],))

    @rule(predicate=st.sampled_from(sorted(PREDICATES)))
    def change_predicate(self, predicate: str) -> None:
        make_tube(self.conn, partitions=2, predicate=predicate)
        self.state.predicate = predicate

    @rule()
    def begin_or_save(self) -> None:
        name = f"s{len(self.saved)}"
        self.conn.execute(f"SAVEPOINT {name}" if self.saved else "BEGIN")
        self.saved.append((name, self.state.copy()))

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

    @invariant()
    def the_tube_holds_exactly_these(self) -> None:
        if self.saved:
            return
        found = take(self.conn)
        assert sorted((touch.op, touch.id) for touch in found) == sorted(self.state.touches)
        assert all(touch.shard == touch.id % SHARDS for touch in found)
        self.state.touches.clear()

    def teardown(self) -> None:
        self.conn.execute("ROLLBACK")


@contextmanager
def writing(dsn: str, shards: int) -> Iterator[Conn]:
    with open_session(dsn, client_encoding="utf8") as conn:
        conn.execute("SET client_min_messages = error")
        # Deferrable: keys may then be moved onto one another within a statement.
        conn.execute(f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY DEFERRABLE, n int, gone boolean)")
        make_tube(conn)
        attach(conn, shards=shards)
        yield conn


@pytest.mark.parametrize("version", [18, "system"])
def test_no_touch_is_missing_and_none_is_too_many(servers: Servers, version: int | str) -> None:
    with servers.get(version).database(installed=True) as dsn, writing(dsn, SHARDS) as conn:  # type: ignore[arg-type]

        class Machine(Writer):
            pass

        Machine.conn = conn
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
