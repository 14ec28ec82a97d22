"""Does what plans say, over one session: a transaction for each step, so that no table is locked for long.

Each transaction reads the present state again and does the first missing step. Two at once do the steps
together, by a lock until the end of the transaction: an interrupted run continues, and nothing is done twice.
In a transaction of the caller, all steps are savepoints of it, and tables stay locked until its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, LiteralString, TypeVar

import psycopg

from pytube.config.names import TableName
from pytube.db.errors import translated
from pytube.db.version import check
from pytube.declarations import statements
from pytube.declarations.model import (
    UNFINISHED,
    Action,
    DeclaredOutbox,
    DeclaredTube,
    Kind,
    Plan,
    Step,
    There,
    farewell,
    read_there,
)
from pytube.declarations.statements import Statement
from pytube.declarations.survey import plan
from pytube.documents.model import Document
from pytube.errors import StatementFailed, UsageError
from pytube.outbox.admin import Outboxes
from pytube.tubes.admin import Tubes
from pytube.tubes.calls import explained
from pytube.tubes.queries import within
from pytube.tubes.tables import LockBusy, with_retries

T = TypeVar("T")
Told = Callable[[Step], object]

# Postgres' notices about a manual attachment: the plan has shown them, or a relation is made that way.
_SAY: Final = "SELECT pg_catalog.set_config('client_min_messages', %(level)s, true)"
_SAID: Final = "SELECT pg_catalog.current_setting('client_min_messages')"
_HAS_RECORDS: Final = "SELECT s.count FROM {s}.outbox_stats() AS s WHERE s.outbox = %(name)s"
_BACKFILLED: Final = """
    SELECT DISTINCT n.nspname, c.relname FROM {s}.tube_backfill_list(%(name)s) AS l
    JOIN pg_catalog.pg_class AS c ON c.oid = l.relation
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
"""
_OID: Final = """
    SELECT c.oid FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
"""
# Tables that the role can't attach: it is not their owner, or may not create in their schema.
_OTHERS: Final = """
    SELECT n.nspname || '.' || c.relname, pg_catalog.pg_get_userbyid(c.relowner)::text, current_user::text
    FROM unnest(%(schemas)s::text[], %(tables)s::text[]) AS t (schema, name)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = t.schema
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = t.name
    WHERE NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')
    ORDER BY 1
"""
_OF_OWNERS = (Action.ATTACH, Action.CHANGE, Action.DECLARE, Action.WAKE, Action.MAKE)
"""Steps that the owners of their tables have to do."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The steps that were taken for one document, tube or outbox."""

    steps: Sequence[Step]
    backfills: Sequence[int]
    """The numbers of the requested ones."""


class Declarations:
    """What files declare of one installation. Errors as for `Tubes`."""

    def __init__(self, connection: psycopg.Connection, schema: str = "tube") -> None:
        """`connection` is as for `Tubes`, with pytube's schema in its path. Raises `SchemaMismatch`."""
        check(connection, schema)
        self.connection = connection
        self.schema = schema

    def there(self) -> There:
        """All that plans compare with."""
        with explained(), translated():
            return read_there(self.connection, self.schema)

    def check(self, plans: Sequence[Plan], *, limit: float = 60.0) -> None:
        """Refuse to begin steps that can't be finished: the SQL refuses, a right is missing, or records wait.

        Args:
            plans: as they were shown.
            limit: as for `apply`.

        Raises:
            LockBusy: a table that is to be adopted stayed locked.
            UsageError: the reason.
        """
        there = self.there()
        self._check_owners({table for one in plans for table in self._owned(one, there)})
        for one in plans:
            self._try_to_make(one, limit)
        for one in plans:
            if one.kind is not Kind.OUTBOX or not one.losses or there.outboxes[one.name].adopted:
                continue
            with translated():
                counts = [count for (count,) in self.rows(_HAS_RECORDS, name=one.name)]
            if any(count not in (None, "0") for count in counts):
                raise UsageError(
                    f"nothing was changed: {one.subject} would be dropped, but still holds records; let "
                    "workers deliver them and retry or discard the parked ones, or run `pytube outbox drop "
                    f"{one.name} --force`"
                )

    def _owned(self, plan: Plan, there: There) -> set[TableName]:
        """The tables whose owner has to do this: attaching a table needs the rights of its owner."""
        found: set[TableName] = set()
        for step in plan.steps:
            if step.action in _OF_OWNERS:
                found |= {one.table for one in step.switches}
                found |= set() if step.table is None else {step.table}
            elif step.action is Action.PREDICATE:
                found |= {one.table for one in there.tubes[plan.name].tables}
        if isinstance(plan.target, DeclaredOutbox) and plan.target.table is not None:
            actions = {step.action for step in plan.steps}
            # The adoption is to be changed, or was cut before its index was built.
            if Action.PARTITIONS in actions or (
                Action.DECLARE in actions
                and not Outboxes(self.connection, self.schema).is_fit(plan.name, plan.target.partitions)
            ):
                found.add(plan.target.table)
        return found

    def _check_owners(self, tables: Collection[TableName]) -> None:
        names = {"schemas": [one.schema for one in tables], "tables": [one.table for one in tables]}
        with translated():
            others = self.connection.execute(_OTHERS, names).fetchall()
        if others:
            owned = ", ".join(f"{table} of {owner}" for table, owner, _ in others)
            owners = " and ".join(sorted({owner for _, owner, _ in others}))
            raise UsageError(
                f"nothing was changed: the role {others[0][2]} does not own {owned}, and only its owner can "
                f"have a table followed; run it as a role that is a member of {owners} and of tube_admin"
            )

    def _try_to_make(self, plan: Plan, limit: float) -> None:
        """Make the missing parts, and roll back: only the SQL knows all that it refuses."""
        if isinstance(plan.target, DeclaredOutbox):
            # The trigger that wakes is never refused, and would have to lock the table.
            plan = replace(plan, target=replace(plan.target, wakes=False))
        for step in plan.steps:
            if step.action is Action.MAKE:
                try:
                    with explained(), translated():
                        _Run(self, plan, limit=limit).attempt(step)
                except UsageError as error:
                    raise UsageError(f"nothing was changed: {plan.subject}: {error}") from error

    def apply(
        self, plan: Plan, *, backfill: bool = False, limit: float = 60.0, told: Told = lambda _: None
    ) -> Applied:
        """Do the remaining steps of a plan.

        Args:
            plan: as it was shown.
            backfill: ask for backfills of root tables whose documents are others from then on, in the
                transaction of the last step that they wait for; or that have never had one. Where the file is
                as it was applied last, and that was not followed, they are asked for anyway.
            limit: seconds to wait for the lock of a table; writers do not queue behind it meanwhile.
            told: called with each step when it is done.

        Raises:
            LockBusy: a table stayed locked; finished steps stay, and are passed over when called again.
            UsageError: another declaration was applied meanwhile, or the present state can't become it.
        """
        run = _Run(self, plan, backfill=backfill, limit=limit)
        with explained(), translated():
            if plan.target is not None and plan.kind is not Kind.OUTBOX:
                self.rows(statements.SYNC.query)
            done = run.all(told)
            if backfill:
                run.begin_first()
        return Applied(done, run.backfills)

    def backfilled(self, tube: str) -> set[TableName]:
        """The tables of which a tube has had a backfill."""
        return {TableName(*row) for row in self.rows(_BACKFILLED, name=tube)}

    def rows(self, query: LiteralString, **arguments: Any) -> list[tuple[Any, ...]]:
        """The rows that a query of pytube gives."""
        return self.connection.execute(within(query, self.schema), arguments).fetchall()


class _Run:
    """One apply of one plan: the agreed steps, and changes that others may have made since."""

    def __init__(
        self, declarations: Declarations, plan: Plan, *, limit: float, backfill: bool = False
    ) -> None:
        self._at = declarations
        self._limit = limit
        self._plan = plan
        self._backfill = backfill
        self._digest = None if plan.target is None else plan.target.digest
        self._agreed = {(step.action, step.name, step.table) for step in plan.losses}
        self._there = There()
        self._left: Sequence[Step] = ()
        self.backfills: list[int] = []

    def all(self, told: Told) -> Sequence[Step]:
        """Do steps until none is left; returns the finished ones."""
        done: list[Step] = []
        try:
            while (step := self._one()) is not None:
                if step in done[-1:]:
                    raise StatementFailed(f"{self._plan.subject}: still to be done, though done: {step.text}")
                done.append(step)
                told(step)
        except LockBusy as error:
            if not done:
                raise
            raise LockBusy(
                f"{error}; finished steps stay, and the next apply continues from there"
            ) from error
        return done

    def _one(self) -> Step | None:
        expected = self._next()
        step = self._patiently(self._transaction, None if expected is None else expected.table)
        if step is not None:
            self._fit_index(step)
        return step

    def _transaction(self) -> Step | None:
        with self._at.connection.transaction():
            self._send(statements.lock(self._plan, self._at.schema))
            step = self._next()
            if step is not None:
                is_drift = self._applied() == self._digest
                self._do(step)
                # Changes that were missed until then are unknown, and no later change makes up for them. So
                # where it is drift, a backfill does not depend on a flag.
                if self._backfill or is_drift:
                    roots = statements.settled_roots(step, self._left[1:])
                    self.backfills += [self._begin(root) for root in roots]
        return step

    def attempt(self, step: Step) -> None:
        def transaction() -> None:
            with self._at.connection.transaction(force_rollback=True):
                self._there = self._at.there()
                self._do(step)

        self._patiently(transaction, step.table)

    def _patiently(self, transaction: Callable[[], T], table: TableName | None) -> T:
        """Run a transaction until it gets its locks, also that of `table`; `LockBusy` after the limit."""
        return with_retries(
            self._at.connection,
            transaction,
            table=0 if table is None else self._oid(table),
            name=self._plan.name if table is None else str(table),
            limit=self._limit,
        )

    def _next(self) -> Step | None:
        """The step to do first; `UsageError` if it was not agreed to."""
        found, self._there = self._plan, self._at.there()
        applied = self._applied()
        if self._is_there() and applied not in (found.applied, UNFINISHED, self._digest):
            raise UsageError(
                f"{found.subject}: another declaration of it was applied in the meantime; make sure that "
                "everyone uses the same file, then run `pytube plan` again"
            )
        if found.target is not None:
            self._left = plan(found.target, self._there).steps
        else:
            self._left = () if applied is None else self._still()
        step = next(iter(self._left), None)
        if step is not None and step.loses and (step.action, step.name, step.table) not in self._agreed:
            raise UsageError(
                f"{found.subject}: it was changed in the meantime, so apply would now {step.text}; "
                "run `pytube plan` again"
            )
        return step

    def _still(self) -> Sequence[Step]:
        """The planned steps for an object that is no longer declared, if no part was made manually since."""
        if self._plan.kind is Kind.TUBE and not all(
            one.made for one in self._there.tubes[self._plan.name].tables
        ):
            return farewell(Kind.TUBE, self._plan.name, self._there, stays=True).steps
        return self._plan.steps

    def _applied(self) -> str | None:
        return self._there.applied(self._plan.kind).get(self._plan.name)

    def _is_there(self) -> bool:
        there = self._there.outboxes if self._plan.kind is Kind.OUTBOX else self._there.tubes
        return self._plan.name in there

    # --- one step ----------------------------------------------------------------------------------

    def _do(self, step: Step) -> None:
        attaches = step.action in (Action.ATTACH, Action.CHANGE, Action.DECLARE)
        ((level,),) = self._at.rows(_SAID)
        if attaches:
            self._at.rows(_SAY, level="error")
        for one in statements.of_step(step, self._plan, self._there):
            self._send(one)
        if attaches:
            self._at.rows(_SAY, level=level)

    def _send(self, one: Statement) -> list[tuple[Any, ...]]:
        arguments = {
            name: self._oid(value) if isinstance(value, TableName) else value
            for name, value in one.arguments.items()
        }
        return self._at.rows(one.query, **arguments)

    def _fit_index(self, step: Step) -> None:
        """Indexes are built CONCURRENTLY, so not in a transaction; repeating it does no harm."""
        target, name = self._plan.target, step.name
        if step.action is Action.PARTITIONS and isinstance(target, Document | DeclaredTube):
            Tubes(self._at.connection, self._at.schema).create(name, target.partitions)
        elif isinstance(target, DeclaredOutbox) and step.action in (
            Action.PARTITIONS,
            Action.MAKE,
            Action.DECLARE,  # it may have been cut before
        ):
            admin = Outboxes(self._at.connection, self._at.schema)
            if step.action is Action.DECLARE and admin.is_fit(name, target.partitions):
                return
            if target.table is None:
                admin.create(name, target.partitions)
            else:
                admin.adopt(name, target.table.sql, target.partitions, wake=target.wakes, limit=self._limit)

    # --- backfills ---------------------------------------------------------------------------------

    def begin_first(self) -> None:
        """Ask for a backfill of each root table that has never had one."""
        known = self._at.backfilled(self._plan.name)
        roots = statements.roots(self._plan.target)
        self.backfills += [self._begin(root) for root in roots if root not in known]

    def _begin(self, root: TableName) -> int:
        ((number,),) = self._send(statements.backfill(self._plan.name, root))
        return int(number)

    def _oid(self, table: TableName) -> int:
        """Of a table; `UsageError` where it is gone."""
        row = self._at.connection.execute(_OID, table._asdict()).fetchone()
        if row is None:
            raise UsageError(f"the table {table} no longer exists; run `pytube plan` again")
        return int(row[0])
