"""What `pytube apply` would do now, as a script for psql: `pytube apply --print`.

It is made from a plan alone and needs no more rights than that. Unlike apply, it can't look again between two
steps: so it refuses to run where another declaration was applied meanwhile, and steps that may be run twice
stay in it even when they are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from psycopg import sql

from pytube.config.names import TableName
from pytube.counts import printable
from pytube.declarations import statements
from pytube.declarations.apply import Declarations
from pytube.declarations.model import UNFINISHED, Action, DeclaredOutbox, Kind, Plan, Step, There
from pytube.declarations.statements import Statement
from pytube.errors import UsageError
from pytube.outbox import queries as outbox_queries
from pytube.tubes import queries

_HEAD: Final = """\
-- What `pytube apply` would do now, for psql: psql -f FILE DATABASE. Each step is a separate transaction.
-- Run it as a member of pytube's admin role and of the owners of the tables.
--
-- It stops at the first error; finished steps stay. Run it again then, or print another one: finished steps
-- change nothing when they run again, but a backfill starts again.
--
-- Only `pytube apply` waits for the lock of a table as long as --lock-timeout says, and names who holds it.
-- Here a step gives up after half a minute or so. Writers don't queue behind either.
\\set ON_ERROR_STOP on
\\set AUTOCOMMIT on
\\o /dev/null
SET client_min_messages = error;
"""
_END: Final = """
RESET client_min_messages;
\\o
"""
# As _Run._next of apply refuses it.
_GUARD: Final = """
SELECT EXISTS (
    SELECT FROM {s}.tube_applied() AS a
    WHERE a.tube = %(name)s AND coalesce({recorded}, 'none') NOT IN (%(before)s, %(unfinished)s, %(after)s)
) AS is_changed
"""
_IS_THERE: Final = "SELECT EXISTS (SELECT FROM {s}.tube_applied() AS a WHERE a.tube = %(name)s) AS is_there"
# Else a worker does it, as soon as that is quick; see BUILDER.
_FIT: Final = """
SELECT {function}(%(queue)s, %(partitions)s) FROM pg_catalog.pg_class AS c
WHERE c.oid = {table} AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
    AND pg_catalog.has_schema_privilege(c.relnamespace, 'CREATE')
"""


def script(
    declarations: Declarations, plans: Sequence[Plan], *, backfill: bool, left: Sequence[Plan] = ()
) -> Iterator[str]:
    """The script, in pieces; a comment says why the plans `left` are left out.

    Raises:
        UsageError: nothing has followed a renaming yet, so that the steps may be others.
    """
    there = declarations.there()
    if renamed := sorted({table for one in plans for table in there.renamed.get(one.name, ())}):
        raise UsageError(
            f"nothing was printed: columns of {', '.join(renamed)} were renamed or dropped, and nothing has "
            "followed that yet; let a worker run, or call tube_sync(), and print then"
        )
    printer = _Printer(declarations, there)
    yield _HEAD
    for one in plans:
        yield from printer.section(one, backfill=backfill)
    for one in left:
        yield f"\n-- {printable(f'{one.kind} {one.name}: {one.notes[0]}')}"
    yield _END


class _Printer:
    """Writes statements of one installation with their arguments in place."""

    def __init__(self, declarations: Declarations, there: There) -> None:
        self._at = declarations
        self._there = there

    def section(self, plan: Plan, *, backfill: bool) -> Iterator[str]:
        yield f"\n-- {plan.kind} {printable(plan.name)}: {plan.state}"
        if plan.steps:
            yield from self._guard(plan)
            if plan.target is not None and plan.kind is not Kind.OUTBOX:
                yield self._text(statements.SYNC)
        is_drift = plan.target is not None and plan.applied == plan.target.digest
        begun: set[TableName] = set()
        for place, step in enumerate(plan.steps):
            roots = statements.settled_roots(step, plan.steps[place + 1 :])
            chosen = roots if backfill or is_drift else ()
            begun.update(chosen)
            yield from self._step(step, plan, chosen)
        if backfill:
            known = begun | (self._at.backfilled(plan.name) if plan.name in self._there.tubes else set())
            first = [root for root in statements.roots(plan.target) if root not in known]
            yield from (self._text(statements.backfill(plan.name, root)) for root in first)

    def _guard(self, plan: Plan) -> Iterator[str]:
        """Stops where another declaration was applied meanwhile; so does each step, under its lock."""
        query = _GUARD.replace("{recorded}", "a.declared" if plan.kind is Kind.DOCUMENT else "a.applied")
        digest = None if plan.target is None else plan.target.digest
        arguments = {
            "name": plan.name,
            "before": plan.applied or "none",
            "unfinished": UNFINISHED,
            "after": digest or "none",
        }
        yield self._text(Statement(query, arguments), r" \gset")
        message = (
            f"{plan.subject}: another declaration of it was applied since this was printed; print it again"
        )
        body = f"BEGIN RAISE EXCEPTION USING MESSAGE = {_literal(message)}; END"
        yield f"\\if :is_changed\nDO {_literal(body)};\n\\endif"

    def _step(self, step: Step, plan: Plan, roots: Sequence[TableName]) -> Iterator[str]:
        """A step, and the backfills that begin with it."""
        yield f"\n-- {'takes away: ' if step.loses else ''}{printable(step.text)}"
        if step.action is Action.PARTITIONS:
            yield from self._guard(plan)
            yield self._fit(plan)
            yield from self._guard(plan)  # to build an index takes long
            yield self._text(statements.repartition(plan))
            yield self._fit(plan)
            return
        # Only these can't be run twice.
        once = step.action in (Action.MAKE, Action.DETACH, Action.DROP)
        yield "BEGIN;"
        yield self._text(statements.lock(plan, self._at.schema))
        yield from self._guard(plan)
        if once:
            yield self._text(Statement(_IS_THERE, {"name": step.name}), r" \gset")
            yield r"\if :is_there" + ("\n\\else" if step.action is Action.MAKE else "")
        for one in statements.of_step(step, plan, self._there):
            yield self._text(one)
        for root in roots:
            yield self._text(statements.backfill(plan.name, root))
        if once:
            yield r"\endif"
        yield "COMMIT;"
        if isinstance(plan.target, DeclaredOutbox) and step.action in (Action.MAKE, Action.DECLARE):
            yield self._fit(plan)

    def _fit(self, plan: Plan) -> str:
        """Builds the missing index, or drops another one, CONCURRENTLY: so not in a transaction."""
        target = plan.target
        assert target is not None
        if isinstance(target, DeclaredOutbox):
            query = _FIT.replace("{function}", "{s}.outbox_index_sql").replace(
                "{table}", outbox_queries.INDEX_TABLE
            )
        else:
            query = _FIT.replace("{function}", "{s}.tube_index_sql").replace("{table}", queries.INDEX_TABLE)
        arguments = {
            "schema": self._at.schema,
            "queue": plan.name,
            "partitions": statements.partitions(plan.name, target, self._there),
        }
        return self._text(Statement(query, arguments), r" \gexec")

    def _text(self, one: Statement, ending: str = ";") -> str:
        return queries.text(one.query, self._at.schema, one.arguments) + ending


def _literal(text: str) -> str:
    return sql.Literal(text).as_string()
