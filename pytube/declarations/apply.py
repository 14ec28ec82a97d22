"""Does what the plan of a tube or an outbox says, over one session: a transaction for each (see `do_all`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, LiteralString

import psycopg

from pytube.backfill import queries as backfills
from pytube.config.section import key_path
from pytube.db.errors import translated
from pytube.db.version import check
from pytube.declarations import outboxes, tubes
from pytube.declarations.model import DeclaredOutbox, DeclaredTube, Kind, Plan, Step
from pytube.declarations.obstacles import refuse_outbox, refuse_tube
from pytube.declarations.state import Attached, Outbox, Tube, read_outboxes, read_tubes
from pytube.documents.catalogue import Catalogue
from pytube.documents.model import TableName
from pytube.documents.plan import UNFINISHED, Action, State
from pytube.documents.steps import check_owners, do_all, oid_of, patiently
from pytube.errors import UsageError
from pytube.outbox import queries as outbox_queries
from pytube.outbox.admin import Outboxes
from pytube.tubes import queries
from pytube.tubes.admin import Tubes
from pytube.tubes.calls import explained
from pytube.tubes.queries import within

# Postgres' notices about a manual attachment: the plan has shown them.
_SAY: Final = "SELECT pg_catalog.set_config('client_min_messages', %(level)s, true)"
_APPLIED: Final = "SELECT {s}.tube_applied_set(%(name)s, %(digest)s, %(made)s)"
_ATTACHED: Final = "SELECT {s}.tube_applied_attached(%(name)s, %(table)s)"
_DROP: Final = "SELECT {s}.tube_ensure_absent(%(name)s)"
_HAS_RECORDS: Final = "SELECT s.count FROM {s}.outbox_stats() AS s WHERE s.outbox = %(name)s"
_BACKFILLED: Final = "SELECT DISTINCT l.relation::oid FROM {s}.tube_backfill_list(%(name)s) AS l"
# tube_sync() looks for these columns under the names that they have by now.
_RENAMED: Final = """
    SELECT DISTINCT l.tube, l.tbl::text FROM {s}.tube_list() AS l
    WHERE l.tbl IS NOT NULL AND EXISTS (
        SELECT FROM unnest(l.columns || coalesce(l.key_cols, ARRAY[l.id_col])) AS u (name) WHERE NOT EXISTS (
            SELECT FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = l.tbl AND a.attname = u.name AND NOT a.attisdropped))
    ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class Applied:
    """The steps that were done for one tube or outbox."""

    steps: Sequence[Step]
    backfills: Sequence[int]
    """The numbers of the requested ones."""


@dataclass(frozen=True, slots=True)
class There:
    """What a database has, read once for all that is planned."""

    tubes: Mapping[str, Tube]
    outboxes: Mapping[str, Outbox]
    renamed: Mapping[str, Sequence[str]]
    """By tube, tables whose columns were renamed or dropped, and nothing has followed that yet."""


class Declarations:
    """The tubes and outboxes of one installation that files declare. Errors as for `Tubes`."""

    def __init__(self, connection: psycopg.Connection, schema: str = "tube") -> None:
        """`connection` is autocommit, with pytube's schema in its path. Raises `SchemaMismatch`."""
        check(connection, schema)
        self.connection = connection
        self.schema = schema

    def there(self) -> There:
        """All that plans compare with."""
        renamed: dict[str, list[str]] = {}
        with explained(), translated():
            for tube, table in self._rows(_RENAMED):
                renamed.setdefault(tube, []).append(table)
        return There(self.tubes(), self.outboxes(), renamed)

    def tubes(self) -> Mapping[str, Tube]:
        """All tubes."""
        with explained(), translated():
            return read_tubes(self.connection, self.schema)

    def outboxes(self) -> Mapping[str, Outbox]:
        """All outboxes."""
        with explained(), translated():
            return read_outboxes(self.connection, self.schema)

    def plan_tube(self, tube: DeclaredTube, there: There) -> Plan:
        """The plan for a tube.

        Raises:
            UsageError: the present tube can't become the declared one.
        """
        if tube.name in there.outboxes:
            raise UsageError(f"tube.{tube.name}: {tube.name} is an outbox; give the tube another name")
        now = there.tubes.get(tube.name)
        refuse_tube(tube, now)
        return tubes.plan(tube, now)

    def plan_outbox(self, outbox: DeclaredOutbox, there: There) -> Plan:
        """As `plan_tube`."""
        if outbox.name in there.tubes:
            raise UsageError(f"outbox.{outbox.name}: {outbox.name} is a tube; give the outbox another name")
        now = there.outboxes.get(outbox.name)
        refuse_outbox(outbox, now)
        if outbox.table is not None:
            Catalogue(self.connection).table(outbox.table, key_path(("outbox", outbox.name, "adopt")))
        return outboxes.plan(outbox, now)

    def check(self, plans: Sequence[Plan], *, limit: float = 60.0) -> None:
        """Refuse to begin steps that can't be finished: the SQL refuses, a right is missing, or records wait.

        Args:
            plans: as they were shown.
            limit: as for `apply`.

        Raises:
            LockBusy: a table that is to be adopted stayed locked.
            UsageError: the reason.
        """
        check_owners(self.connection, self._owned(plans))
        for one in plans:
            self._try_to_make(one, limit)
        there = self.outboxes()
        for one in plans:
            if one.kind is not Kind.OUTBOX or not one.losses or there[one.name].adopted:
                continue
            with translated():
                counts = [count for (count,) in self._rows(_HAS_RECORDS, name=one.name)]
            if any(count not in (None, "0") for count in counts):
                raise UsageError(
                    f"nothing was changed: {one.subject} would be dropped, but still holds records; let "
                    "workers deliver them and retry or discard the parked ones, or run `pytube outbox drop "
                    f"{one.name} --force`"
                )

    def _try_to_make(self, plan: Plan, limit: float) -> None:
        """Make the missing parts, and roll back: only the SQL knows all that it refuses."""
        if isinstance(plan.target, DeclaredOutbox):
            # The trigger that wakes is never refused, and would have to lock the table.
            plan = replace(plan, target=replace(plan.target, wakes=False))

        def attempt(step: Step) -> None:
            with self.connection.transaction(force_rollback=True):
                _Run(self, plan, backfill=False, limit=limit).do(step)

        for step in plan.steps:
            if step.action is not Action.MAKE:
                continue
            try:
                with explained(), translated():
                    patiently(self.connection, partial(attempt, step), plan.subject, step.table, limit)
            except UsageError as error:
                raise UsageError(f"nothing was changed: {plan.subject}: {error}") from error

    def _owned(self, plans: Sequence[Plan]) -> set[TableName]:
        """The tables whose owner has to do this."""
        found: set[TableName] = set()
        there = self.tubes()
        for one in plans:
            if isinstance(one.target, DeclaredOutbox) and one.target.table is not None and self._adopts(one):
                found.add(one.target.table)
            for step in one.steps:
                if step.table is not None and step.action in (
                    Action.ATTACH,
                    Action.CHANGE,
                    Action.WAKE,
                    Action.MAKE,
                ):
                    found.add(step.table)
                elif step.action is Action.PREDICATE:
                    found |= {each.table for each in there[one.name].tables}
        return found

    def _adopts(self, plan: Plan) -> bool:
        """Whether the adoption of its table is to be changed, or was cut before its index was built."""
        assert isinstance(plan.target, DeclaredOutbox)
        admin = Outboxes(self.connection, self.schema)
        actions = {step.action for step in plan.steps}
        return Action.PARTITIONS in actions or (
            Action.DECLARE in actions and not admin.is_fit(plan.name, plan.target.partitions)
        )

    def apply(
        self,
        plan: Plan,
        *,
        backfill: bool = False,
        limit: float = 60.0,
        told: Callable[[Step], None] = lambda _: None,
    ) -> Applied:
        """Do the remaining steps of a plan.

        Args:
            plan: as it was shown.
            backfill: ask for backfills of root tables that are followed from then on, or otherwise than
                before, or that have never had one. Where the file is as it was applied last, and that was not
                followed, they are asked for anyway.
            limit: seconds to wait for the lock of a table; writers do not queue behind it meanwhile.
            told: called with each step when it is done.

        Raises:
            LockBusy: a table stayed locked; finished steps stay, and are passed over when called again.
            UsageError: another declaration was applied meanwhile, or the present state can't become it.
        """
        run = _Run(self, plan, backfill=backfill, limit=limit)
        with explained(), translated():
            if plan.target is not None and plan.kind is Kind.TUBE:
                self.run("SELECT {s}.tube_sync()")  # or names of before a renaming look like other columns
            done = do_all(
                self.connection,
                plan.subject,
                lock=f"{self.schema} {plan.kind} {plan.name}",
                upcoming=run.next,
                do=run.do,
                afterwards=run.afterwards,
                limit=limit,
                told=told,
            )
            if backfill and isinstance(plan.target, DeclaredTube):
                run.begin_first(plan.target)
        return Applied(done, run.backfills)

    def backfilled(self, tube: str) -> Collection[int]:
        """The oids of its tables that have had a backfill."""
        return {oid for (oid,) in self._rows(_BACKFILLED, name=tube)}

    def run(self, query: LiteralString, **arguments: Any) -> None:
        """Run a statement of pytube."""
        self.connection.execute(within(query, self.schema), arguments)

    def _rows(self, query: LiteralString, **arguments: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(within(query, self.schema), arguments).fetchall()


class _Run:
    """One apply of one tube or outbox: the agreed steps, and changes that others may have made since."""

    def __init__(self, declarations: Declarations, plan: Plan, *, backfill: bool, limit: float) -> None:
        self._at = declarations
        self._limit = limit
        self._plan = plan
        self._backfill = backfill or plan.state is State.DRIFTED
        digest = None if plan.target is None else plan.target.digest
        self._expected: Collection[str | None] = {plan.applied, UNFINISHED, digest}
        self._agreed = {(step.action, step.table) for step in plan.losses}
        self._left: Sequence[Step] = ()
        self.backfills: list[int] = []

    def next(self) -> Step | None:
        """The step to do first; `UsageError` if it was not agreed to."""
        plan, target = self._plan, self._plan.target
        now = self._now()
        if now is not None and now.applied not in self._expected:
            raise UsageError(
                f"{plan.subject}: another declaration of it was applied in the meantime; make sure that "
                "everyone uses the same file, then run `pytube plan` again"
            )
        if target is None:
            self._left = () if now is None or now.applied is None else self._still(now)
        elif isinstance(target, DeclaredTube):
            assert now is None or isinstance(now, Tube)
            refuse_tube(target, now)
            self._left = tubes.steps_left(target, now)
        else:
            assert now is None or isinstance(now, Outbox)
            refuse_outbox(target, now)
            self._left = outboxes.steps_left(target, now)
        step = next(iter(self._left), None)
        if step is not None and step.loses and (step.action, step.table) not in self._agreed:
            raise UsageError(
                f"{plan.subject}: it was changed in the meantime, so apply would now {step.text}; "
                "run `pytube plan` again"
            )
        return step

    def _now(self) -> Tube | Outbox | None:
        if self._plan.kind is Kind.TUBE:
            return self._at.tubes().get(self._plan.name)
        return self._at.outboxes().get(self._plan.name)

    def _still(self, now: Tube | Outbox) -> Sequence[Step]:
        """The planned steps for an object that is no longer declared, if no part was made manually since."""
        steps = self._plan.steps
        by_hand = isinstance(now, Tube) and not all(one.made for one in now.tables)
        return tubes.farewell(now, stays=True).steps if isinstance(now, Tube) and by_hand else steps

    # --- one step ----------------------------------------------------------------------------------

    def do(self, step: Step) -> None:
        """One step, within its transaction."""
        match self._plan.target:
            case DeclaredTube() as tube:
                self._do_tube(step, tube)
            case DeclaredOutbox() as outbox:
                self._do_outbox(step, outbox)
            case None:
                self._end(step)
        for root in step.roots:
            # It has to read after the last table is followed that its documents are made of.
            if self._backfill and not any(root in other.roots for other in self._left[1:]):
                self.backfills.append(self._begin(root))

    def afterwards(self, step: Step) -> None:
        """Indexes, which are built CONCURRENTLY; repeating it does no harm."""
        target, name = self._plan.target, step.name
        if step.action is Action.PARTITIONS and isinstance(target, DeclaredTube):
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
                table = _quoted(target.table)
                admin.adopt(name, table, target.partitions, wake=target.wakes, limit=self._limit)

    def begin_first(self, tube: DeclaredTube) -> None:
        """Ask for a backfill of each root table that has never had one."""
        known = self._at.backfilled(tube.name)
        for one in tube.tables:
            if one.root and self._oid(one.table) not in known:
                self.backfills.append(self._begin(one.table))

    def _do_tube(self, step: Step, tube: DeclaredTube) -> None:
        match step.action:
            case Action.MAKE:
                self._at.run(
                    queries.ENSURE_EXISTS,
                    tube=tube.name,
                    partitions=tube.partitions or 1,
                    predicate=tube.predicate or "",
                    key_type=tube.key_type.value,
                )
                self._note(UNFINISHED, made=True)
            case Action.PREDICATE:
                now = self._at.tubes()[tube.name]
                self._at.run(
                    queries.ENSURE_EXISTS,
                    tube=tube.name,
                    partitions=now.partitions,
                    predicate=tube.predicate or "",
                    key_type=None,
                )
            case Action.ATTACH | Action.CHANGE:
                wanted = next(one for one in tube.tables if one.table == step.table)
                self._attach(tube, wanted)
                if step.action is Action.ATTACH:
                    self._at.run(_ATTACHED, name=tube.name, table=self._oid(wanted.table))
                    now = self._at.tubes()[tube.name]
                    if now.applied is None:  # created manually; from here on the table is the file's
                        self._note(UNFINISHED)
            case Action.DECLARE:
                self._note(tube.digest)
            case Action.DETACH:
                assert step.table is not None
                self._at.run(queries.DETACH, tube=tube.name, table=self._oid(step.table))

    def _attach(self, tube: DeclaredTube, one: Attached) -> None:
        self._at.run(_SAY, level="error")
        self._at.run(
            queries.ATTACH,
            tube=tube.name,
            table=self._oid(one.table),
            shard=one.shard,
            shards=one.shards,
            id_col=None if one.key_cols else one.column,
            columns=sorted(one.columns),
            replica=one.replica,
            key_cols=list(one.key_cols) or None,
            shard_by=one.shard_by,
        )
        self._at.run(_SAY, level="warning")

    def _do_outbox(self, step: Step, outbox: DeclaredOutbox) -> None:
        match step.action:
            case Action.MAKE | Action.WAKE:
                now = self._at.outboxes().get(outbox.name)
                partitions = (outbox.partitions or 1) if now is None else now.partitions
                if outbox.table is None:
                    self._at.run(
                        outbox_queries.ENSURE_EXISTS,
                        outbox=outbox.name,
                        partitions=partitions,
                        value_type=outbox.value_type,
                    )
                else:
                    self._at.run(
                        outbox_queries.ADOPT,
                        outbox=outbox.name,
                        table=self._oid(outbox.table),
                        partitions=partitions,
                        wake=outbox.wakes,
                    )
                if now is None:
                    self._note(UNFINISHED, made=True)
            case Action.DECLARE:
                self._note(outbox.digest)

    def _end(self, step: Step) -> None:
        if step.action is Action.RELEASE:
            self._note(None)
        elif step.kind is Kind.TUBE:
            self._at.run(_DROP, name=step.name)
        else:
            self._at.run(outbox_queries.DROP, outbox=step.name, force=False)

    def _note(self, digest: str | None, *, made: bool = False) -> None:
        self._at.run(_APPLIED, name=self._plan.name, digest=digest, made=made)

    def _begin(self, root: TableName) -> int:
        """Ask workers for a backfill of a root table; a running one began before this."""
        row = self._at.connection.execute(
            backfills.CREATE,
            {
                "tube": self._plan.name,
                "table": self._oid(root),
                "order_col": None,
                "supersede": True,
                "by_worker": True,
            },
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _oid(self, table: TableName) -> int:
        return oid_of(self._at.connection, table)


def _quoted(table: TableName) -> str:
    """As SQL writes it."""
    parts = (part.replace('"', '""') for part in (table.schema, table.table))
    return ".".join(f'"{part}"' for part in parts)
