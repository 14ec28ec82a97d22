"""Sessions write, workers come and go between any two of their steps: copies are the documents by hand.

Nothing here depends on time, so what is found is shrunk to a few steps. The real worker, whose steps come
when they come, is in `tests/crash/test_documents_random.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from pytube.model import Document
from tests.crash.documents_bugs import BUGS
from tests.crash.documents_rounds import (
    ISOLATION,
    NO_BUG,
    Bug,
    Differs,
    Writer,
    apply_documents,
    difference_of,
    open_writer,
)
from tests.helpers.documents_shop import CHANGES, MOVES, NAMES, TABLES, TRUNCATED, Conn, Statements
from tests.helpers.documents_steps import STAGES, Delivery, Stage

EXAMPLES = int(os.environ.get("PYTUBE_EXAMPLES", "15"))
LONG_EXAMPLES = 1500
"""Far more than any of the bugs takes."""
STEPS = 25
FILLED = 150
"""Statements before the first example. All examples begin with the rows that they have left."""
WRITERS = 3
_SAVE = "CREATE SCHEMA saved; " + "; ".join(
    f"CREATE TABLE saved.{table} AS TABLE shop.{table}" for table in TABLES
)
_RESTORE = "; ".join(
    [
        "SET session_replication_role = replica",
        *(f"DELETE FROM shop.{table}" for table in TABLES),  # of few rows: quicker than TRUNCATE
        *(f"INSERT INTO shop.{table} OVERRIDING SYSTEM VALUE TABLE saved.{table}" for table in TABLES),
        "ALTER TABLE shop.product_categories ALTER COLUMN id RESTART WITH 1000",
        "RESET session_replication_role",
    ]
)


# --- what a step is: they are shown as they are ----------------------------------------------------


@dataclass(frozen=True)
class Begin:
    writer: int
    isolation: str


@dataclass(frozen=True)
class Write:
    writer: int
    statement: str


@dataclass(frozen=True)
class End:
    writer: int
    how: str


@dataclass(frozen=True)
class EndPrepared:
    how: str


@dataclass(frozen=True)
class Deliver:
    stages: tuple[Stage, ...]
    of: str
    """What the tubes are, or a document with its relations."""


@dataclass(frozen=True)
class Abandon:
    of: str


@dataclass(frozen=True)
class Settle:
    """All that is committed is delivered, and compared."""


Step = Begin | Write | End | EndPrepared | Deliver | Abandon | Settle
_STAGES: list[tuple[Stage, ...]] = [("mark", "read"), ("send", "purge"), *((stage,) for stage in STAGES)]
_OF = st.sampled_from(("documents", "relations", *NAMES))
_WRITER = st.integers(0, WRITERS - 1)
_ENDS = st.sampled_from(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK", "PREPARE"))


@st.composite
def _statements(draw: st.DrawFn, *among: Sequence[str]) -> str:
    return Statements(lambda among: draw(st.sampled_from(among))).next(*among)


_KINDS: Sequence[tuple[int, st.SearchStrategy[Step]]] = (
    (2, st.builds(Settle)),
    (10, st.builds(Write, _WRITER, _statements())),
    (8, st.builds(Deliver, st.sampled_from(_STAGES), _OF)),
    (5, st.builds(End, _WRITER, _ENDS)),
    (4, st.builds(Begin, _WRITER, st.sampled_from(ISOLATION))),
    (1, st.builds(Write, _WRITER, st.sampled_from([f"TRUNCATE {tables}" for tables in TRUNCATED]))),
    (1, st.builds(Abandon, _OF)),
    (1, st.builds(EndPrepared, st.sampled_from(("COMMIT", "ROLLBACK")))),
)
"""How often each comes. Needless steps are shrunk to the first one, and are taken out, as it is so short."""
_STEP = st.sampled_from([kind for weight, kind in _KINDS for _ in range(weight)]).flatmap(lambda kind: kind)


def _while_open(number: int, isolation: str, first: str, second: str) -> tuple[Step, ...]:
    """A transaction changes a row, and ends when what another one joined to it meanwhile is delivered."""
    other = (number + 1) % WRITERS
    return (
        End(other, "COMMIT"),
        Begin(number, isolation),
        Write(number, first),
        Write(other, second),
        Settle(),
        End(number, "COMMIT"),
        Settle(),
    )


def _under_way(number: int, first: str, second: str) -> tuple[Step, ...]:
    """Rows change after their documents were read, and are marked before these are sent."""
    return (
        End(number, "COMMIT"),
        Write(number, first),
        Deliver(("mark", "read"), "relations"),
        Deliver(("send", "purge"), "relations"),
        Deliver(("mark", "read"), "documents"),
        Write(number, second),
        Deliver(("mark", "send", "purge"), "documents"),
        Settle(),
    )


_STEPS = st.sampled_from(
    [_STEP.map(lambda step: (step,))] * 3
    + [
        st.builds(_while_open, _WRITER, st.sampled_from(ISOLATION), _statements(CHANGES), _statements(MOVES)),
        st.builds(_under_way, _WRITER, _statements(), _statements()),
    ]
).flatmap(lambda kind: kind)
"""Interleavings that single steps rarely come to, while no later touch hides what was lost."""


# --- the machine -----------------------------------------------------------------------------------


class Sessions(RuleBasedStateMachine):
    """Writers, lines, and the comparison. The class variables are set by `machine`."""

    session: ClassVar[Conn]
    connections: ClassVar[list[Conn]]
    delivery: ClassVar[Delivery]
    copies: ClassVar[dict[str, dict[Any, Document]]]
    """With which all examples begin."""

    @initialize()
    def restore(self) -> None:
        self.end_prepared("ROLLBACK")
        for connection in self.connections:
            connection.execute("ROLLBACK")
        self.writers = [Writer(number, one) for number, one in enumerate(self.connections)]
        emptied = "; ".join(f"DELETE FROM tube.{tube}" for tube in self.delivery.tubes)
        self.session.execute(f"{_RESTORE}; {emptied}".encode())
        self.delivery.restore(self.copies)
        self.names = 0

    @rule(steps=_STEPS)
    def do(self, steps: tuple[Step, ...]) -> None:
        """One rule for all: of several, Hypothesis leaves some out, and then next to nothing happens."""
        for step in steps:
            self.take(step)

    def take(self, step: Step) -> None:
        match step:
            case Begin(number, isolation):
                self.begin(self.writers[number], isolation)
            case Write(number, statement):
                self.writers[number].write(statement)
            case End(number, how):
                self.end(self.writers[number], how)
            case EndPrepared(how):
                self.end_prepared(how, most=1)
            case Deliver(stages, of):
                for stage in stages:
                    self.delivery.do(stage, self.tubes(of))
            case Abandon(of):
                self.delivery.abandon(self.tubes(of))
            case Settle():
                self.settle()

    def tubes(self, of: str) -> list[str]:
        """The tubes that a step is about."""
        if of in NAMES:
            return [tube for tube in self.delivery.tubes if tube.partition("_relations")[0] == of]
        return [tube for tube in self.delivery.tubes if (tube in NAMES) == (of == "documents")]

    def begin(self, writer: Writer, isolation: str) -> None:
        if not writer.is_open:
            writer.begin(isolation)

    def end(self, writer: Writer, how: str) -> None:
        if how == "PREPARE":
            if writer.holds_table:  # nothing could be read until it ends
                how = "COMMIT"
            else:
                self.names += 1
                how = f"PREPARE TRANSACTION '{self.names}'"
        writer.end(how)

    def settle(self) -> None:
        for writer in self.writers:
            if writer.holds_table:
                self.end(writer, "COMMIT")
        if self.delivery.is_asked_for_all(self.session):  # a backfill waits for those who write
            self.end_all()
        self.delivery.drain(self.session)
        difference = difference_of(self.session, self.delivery.stores)
        if difference is not None:
            raise Differs(difference)

    def end_all(self) -> None:
        for writer in self.writers:
            self.end(writer, "COMMIT")
        self.end_prepared("COMMIT")

    def end_prepared(self, how: str, most: int | None = None) -> None:
        for name in prepared(self.session)[:most]:
            self.session.execute(f"{how} PREPARED '{name}'".encode())

    def teardown(self) -> None:
        """While transactions stay open, and when they have ended."""
        if hasattr(self, "writers"):
            self.settle()
            self.end_all()
            self.settle()


def prepared(session: Conn) -> list[str]:
    """The transactions that are prepared in the database."""
    rows = session.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY 1")
    return [gid for (gid,) in rows]


@contextmanager
def machine(dsn: str, bug: Bug = NO_BUG, patch: pytest.MonkeyPatch | None = None) -> Iterator[None]:
    """Fill the tables, and have what `Sessions` needs."""
    config = apply_documents(dsn, bug)
    Sessions.session = open_writer(dsn)
    Sessions.connections = [open_writer(dsn) for _ in range(WRITERS)]
    with Delivery(dsn, config) as Sessions.delivery:
        statements, filling = Statements(random.Random(1).choice), Writer(0, Sessions.session)
        for _ in range(FILLED):
            statement = statements.next()
            if not statement.startswith(("DELETE", "TRUNCATE")):
                filling.write(statement)
        Sessions.delivery.drain(Sessions.session)
        Sessions.session.execute(_SAVE.encode())
        assert difference_of(Sessions.session, Sessions.delivery.stores) is None
        Sessions.copies = {tube: dict(store.held) for tube, store in Sessions.delivery.stores.items()}
        if patch is not None:
            bug.patch(patch, dsn)
        yield
    for connection in (Sessions.session, *Sessions.connections):
        connection.close()


def run(examples: int, *, shrinks: bool = True) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        phases=[Phase.generate, *([Phase.shrink] if shrinks else [])],
        database=None,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.MonkeyPatch.context() as patch:
        # Up to five examples behind each would be copies of it with parts repeated, which find little.
        patch.setattr(ConjectureRunner, "generate_mutations_from", lambda *_: None)
        run_state_machine_as_test(Sessions, settings=chosen)


def test_copies_are_the_documents_by_hand(dsn: str) -> None:
    with machine(dsn):
        run(EXAMPLES)


@pytest.mark.soak
def test_copies_are_the_documents_by_hand_for_long(any_dsn: str) -> None:
    with machine(any_dsn):
        run(LONG_EXAMPLES)


@pytest.mark.soak
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_found(dsn: str, bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    with machine(dsn, bug, monkeypatch), pytest.raises((Differs, Flaky)):
        run(LONG_EXAMPLES, shrinks=False)
