"""Does what the plan of a document says, over one session: a transaction for each step (see `do_all`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, LiteralString

import psycopg

from pytube.backfill import queries as backfills
from pytube.backfill.admin import Backfills
from pytube.db.errors import translated
from pytube.db.version import check
from pytube.documents.companions import TubeState, read_tubes
from pytube.documents.model import Document, TableName
from pytube.documents.obstacles import refuse
from pytube.documents.plan import UNFINISHED, Action, Plan, Step, after, next_step, plan, steps_left
from pytube.documents.steps import check_owners, do_all, oid_of, renamed_note
from pytube.errors import UsageError
from pytube.tubes import queries
from pytube.tubes.admin import Tubes
from pytube.tubes.calls import explained
from pytube.tubes.queries import within

# Postgres' notices about a manual attachment: the plan has shown them, or a relation is made that way.
_SAY: Final = "SELECT pg_catalog.set_config('client_min_messages', %(level)s, true)"
_PREDICATES: Final = (
    "SELECT DISTINCT l.tube, l.predicate FROM {s}.tube_list() AS l WHERE l.predicate IS NOT NULL"
)
_OUTBOX: Final = "SELECT o.outbox FROM {s}.outbox_list() AS o WHERE o.outbox = %(name)s"
# tube_sync() looks for these columns under the names that they have by now.
_RENAMED: Final = """
    SELECT DISTINCT d.tbl::text FROM {s}.tube_documents() AS d
    WHERE %(name)s IN (d.tube, d.companion_of) AND d.tbl IS NOT NULL AND EXISTS (
        SELECT FROM unnest(d.columns || d.id_col) AS u (name) WHERE NOT EXISTS (
            SELECT FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = d.tbl AND a.attname = u.name AND NOT a.attisdropped))
    ORDER BY 1
"""
_DECLARE: Final = "SELECT {s}.tube_document_declare(%(tube)s, %(digest)s)"
_COMPANION: Final = (
    "SELECT {s}.tube_companion_ensure(%(tube)s, %(companion)s, %(key_type)s::pg_catalog.regtype)"
)
# An operator's choice of replication stays.
_ATTACH: Final = """
    SELECT {s}.tube_table_ensure_attached(
        %(tube)s, %(oid)s::oid::regclass, %(shard)s, %(shards)s, %(column)s, %(columns)s::pg_catalog.name[],
        coalesce((
            SELECT l.replica FROM {s}.tube_list(%(oid)s::oid::regclass) AS l WHERE l.tube = %(tube)s), false),
        key_cols => %(key_cols)s::pg_catalog.name[], shard_by => %(shard_by)s)
"""
_DROP: Final = "SELECT {s}.tube_ensure_absent(%(tube)s)"


@dataclass(frozen=True, slots=True)
class Applied:
    """The steps that were done for one document."""

    name: str
    steps: Sequence[Step]
    backfill: int | None
    """The number of the backfill that was asked for."""


class Documents:
    """The documents of one installation. Errors as for `Tubes`."""

    def __init__(self, connection: psycopg.Connection, schema: str = "tube") -> None:
        """`connection` is autocommit, with pytube's schema in its path. Raises `SchemaMismatch`."""
        check(connection, schema)
        self._connection = connection
        self._schema = schema

    def tubes(self) -> dict[str, TubeState]:
        """All tubes, with the tables that they follow."""
        with explained(), translated():
            return read_tubes(self._connection, self._schema)

    def plan(self, document: Document | None, name: str, *, stays: bool = False) -> Plan:
        """As `plan`, of the present state."""
        with explained(), translated():
            if self._rows(_OUTBOX, name=name):
                raise UsageError(f"document.{name}: {name} is an outbox; give the document another name")
            predicates = self._predicates()
            renamed = [table for (table,) in self._rows(_RENAMED, name=name)]
        found = plan(document, name, self.tubes(), predicates=predicates, stays=stays)
        if renamed and document is not None:
            found = replace(found, notes=(*found.notes, renamed_note(renamed)))
        return found

    def check_rights(self, plans: Sequence[Plan]) -> None:
        """Refuse to begin if this role can't finish: attaching a table needs the rights of its owner.

        Raises:
            UsageError: it does not have them.
        """
        tables = {
            one.table
            for plan in plans
            for step in plan.steps
            for one in (step, *step.switches)
            if one.table is not None and one.action in (Action.ATTACH, Action.CHANGE)
        }
        check_owners(self._connection, tables)

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
            backfill: ask for a backfill of the root table if the document changes, in the transaction that
                declares it; or if there has never been one. Where a declared document was not followed, one
                is asked for anyway.
            limit: seconds to wait for the lock of a table; writers do not queue behind it meanwhile.
            told: called with each step when it is done.

        Raises:
            LockBusy: a table stayed locked; finished steps stay, and are passed over when called again.
            UsageError: another declaration was applied meanwhile, or the present tubes can't become the
                document.
        """
        run = _Run(plan, backfill=backfill)
        with explained(), translated():
            if plan.document is not None:
                self._value("SELECT {s}.tube_sync()")  # or names of before a renaming look like other columns
            done = do_all(
                self._connection,
                f"document.{plan.name}",
                lock=f"{self._schema} document {plan.name}",
                upcoming=lambda: run.next(self.tubes(), self._predicates()),
                do=lambda step: self._do(step, run),
                afterwards=self._fit_index,
                limit=limit,
                told=told,
            )
        if backfill and plan.document is not None and run.backfill is None:
            run.backfill = self._first_backfill(plan.document)
        return Applied(plan.name, done, run.backfill)

    def _fit_index(self, step: Step) -> None:
        if step.action is Action.PARTITIONS:
            # Its index is built CONCURRENTLY, so not in a transaction; repeating it does no harm.
            Tubes(self._connection, self._schema).create(step.tube, step.partitions)

    def _do(self, step: Step, run: _Run) -> None:
        document = run.plan.document
        is_last = document is not None and _is_last_to_regain(step, document, self.tubes())
        self._change(step, run)
        if document is not None and is_last:
            run.backfill = self._backfill(document)

    def _change(self, step: Step, run: _Run) -> None:
        match step.action:
            case Action.MAKE:
                self._value(
                    queries.ENSURE_EXISTS,
                    tube=step.tube,
                    partitions=step.partitions,
                    predicate="",
                    key_type=str(step.key_type),
                )
                self._value(_DECLARE, tube=step.tube, digest=UNFINISHED)
            case Action.COMPANION:
                self._value(_COMPANION, tube=run.plan.name, companion=step.tube, key_type=str(step.key_type))
            case Action.ATTACH | Action.CHANGE:
                self._attach(step)
            case Action.DECLARE:
                self._declare(step, run)
            case _:
                self._lose(step)

    def _declare(self, step: Step, run: _Run) -> None:
        for switch in step.switches:
            self._attach(switch)
        self._value(_DECLARE, tube=step.tube, digest=step.digest)
        if run.wants_backfill and run.plan.document is not None:
            run.backfill = self._backfill(run.plan.document)

    def _lose(self, step: Step) -> None:
        match step.action:
            case Action.DETACH:
                assert step.table is not None
                self._value(queries.DETACH, tube=step.tube, table=self._oid(step.table))
            case Action.RELEASE:
                # First: for pods in a companion of a document, a backfill would be asked for.
                self._value(_DECLARE, tube=step.tube, digest=None)
                for companion in step.companions:
                    self._value(_DROP, tube=companion)
            case Action.DROP:
                self._value(_DROP, tube=step.tube)

    def _attach(self, step: Step) -> None:
        assert step.table is not None
        self._connection.execute(_SAY, {"level": "error"})
        self._value(
            _ATTACH,
            tube=step.tube,
            oid=self._oid(step.table),
            shard=step.shard,
            shards=step.shards,
            column=None if step.key_cols else step.column,
            columns=list(step.columns),
            key_cols=list(step.key_cols) or None,
            shard_by=step.shard_by,
        )
        self._connection.execute(_SAY, {"level": "warning"})

    def _backfill(self, document: Document) -> int:
        """Ask workers for a backfill of the root table; a running one began with other documents."""
        arguments = {
            "tube": document.name,
            "table": self._oid(document.root.table),
            "order_col": None,
            "supersede": True,
            "by_worker": True,
        }
        row = self._connection.execute(backfills.CREATE, arguments).fetchone()
        assert row is not None
        return int(row[0])

    def _first_backfill(self, document: Document) -> int | None:
        """Ask for one where there has never been any."""
        if Backfills(self._connection, self._schema).all(document.name):
            return None
        with explained(), translated():
            return self._backfill(document)

    def _oid(self, table: TableName) -> int:
        return oid_of(self._connection, table)

    def _predicates(self) -> dict[str, str]:
        return dict(self._rows(_PREDICATES))

    def _rows(self, query: LiteralString, **arguments: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(within(query, self._schema), arguments).fetchall()

    def _value(self, query: LiteralString, **arguments: Any) -> None:
        self._connection.execute(within(query, self._schema), arguments)


def _is_last_to_regain(step: Step, document: Document, tubes: Mapping[str, TubeState]) -> bool:
    """Whether a declared document is followed again once the step is done, and was not all the time.

    The changes missed until then are unknown, and no later change makes up for them: `apply` would report
    success while the copy stays wrong. So this backfill does not depend on a flag. It has to read after the
    last table is attached, so it is asked for together with that step.
    """
    if not step.regains or tubes[document.name].declared != document.digest:
        return False
    left, _ = steps_left(document, after(step, tubes, document.name))
    return not any(one.regains for one in left)


class _Run:
    """One apply of one document: the agreed steps, and changes that others may have made since."""

    def __init__(self, plan: Plan, *, backfill: bool) -> None:
        self.plan = plan
        self.wants_backfill = backfill
        self.backfill: int | None = None
        self._expected: Collection[str | None] = {plan.declared, UNFINISHED, self._digest}
        self._agreed = {_loss(step) for step in plan.losses}

    @property
    def _digest(self) -> str | None:
        return None if self.plan.document is None else self.plan.document.digest

    def next(self, tubes: Mapping[str, TubeState], predicates: Mapping[str, str]) -> Step | None:
        """The step to do first; `UsageError` if it was not agreed to."""
        name, document = self.plan.name, self.plan.document
        tube = tubes.get(name)
        if tube is not None and tube.declared not in self._expected:
            raise UsageError(
                f"document.{name}: another declaration of it was applied in the meantime; make sure that "
                "everyone uses the same file, then run `pytube plan` again"
            )
        if document is None:
            is_there = tube is not None and tube.declared is not None
            return self.plan.steps[0] if is_there else None
        refuse(document, tubes, predicates)
        step = next_step(document, tubes)
        if step is not None and step.loses and _loss(step) not in self._agreed:
            raise UsageError(
                f"document.{name}: the tables it follows were changed in the meantime, so apply would now "
                f"{step.text}; run `pytube plan` again"
            )
        return step


def _loss(step: Step) -> tuple[object, ...]:
    return step.action, step.tube, step.table
