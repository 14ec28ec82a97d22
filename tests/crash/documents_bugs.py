"""Bugs of declared documents, each planted in one place; the random test has to find every one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus

from pytube.db.arrays import array_of
from pytube.documents.model import Document, Link
from pytube.model import OK, Batch, Id, KeyType, Pod, Result
from pytube.pipeline import inflight
from pytube.sinks.relations import RelationsSink
from pytube.sources.pods import TubeSource
from pytube.testing.memory import MemorySink
from tests.crash.documents_rounds import Bug
from tests.helpers.documents_shop import Conn

_DELAY = 0.3
"""Seconds until that comes which is too late."""
_LAG = 20
"""Paths that are read in one snapshot."""


# --- what was compiled -----------------------------------------------------------------------------


def _leave_out(document: Document) -> Document:
    """The relation of categories is followed by nobody."""
    links = tuple(link for link in document.links if link.path is None or link.table.table != "categories")
    return replace(document, links=links)


_BY_OWN_ID = {
    "product_categories": """
        SELECT DISTINCT i.order_id AS key
        FROM shop.product_categories AS j JOIN shop.order_items AS i ON i.product_id = j.product_id
        WHERE j.id = ANY (%(keys)s::bigint[])
    """,
    "notes": """
        SELECT DISTINCT t.order_id AS key
        FROM shop.notes AS r JOIN shop.notes AS m ON m.id = r.parent_id
        JOIN shop.notes AS t ON t.id IN (m.id, m.parent_id) AND t.parent_id IS NULL
        WHERE r.id = ANY (%(keys)s::bigint[])
    """,
}


def _by_own_id(document: Document) -> Document:
    """Rows of the join table, and replies, touch their own ids, which lead nowhere once they are gone."""

    def changed(link: Link) -> Link:
        path = _BY_OWN_ID.get(link.table.table)
        if link.path is None or path is None:
            return link
        return replace(link, by=("id",), path=path, key_type=KeyType.BIGINT)

    return replace(document, links=tuple(map(changed, document.links)))


def _without_where(document: Document) -> Document:
    """Columns of conditions do not count."""
    forgotten = {"cancelled", "deleted_at", "owner_type"}

    def changed(link: Link) -> Link:
        return replace(link, columns=tuple(name for name in link.columns if name not in forgotten))

    return replace(document, links=tuple(map(changed, document.links)))


def _own_links_only(document: Document) -> Document:
    """Relations are left to the writers."""
    return replace(document, links=document.own)


# --- our SQL ---------------------------------------------------------------------------------------


def _sql(old: str, new: str) -> Callable[[Conn], None]:
    """Have the text of what follows a table changed."""

    def change(session: Conn) -> None:
        found = session.execute(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'tube_private_capture_body'"
        ).fetchone()
        assert found is not None
        assert old in found[0], "the text has changed: bring this bug up to date"
        session.execute(found[0].replace(old, new).encode())

    return change


_IN_WRITER = """
CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        PERFORM tube.tube_document_touch('{tube}', 'U', ARRAY(SELECT {key} FROM {root}));
        RETURN NULL;
    END IF;
    PERFORM tube.tube_document_touch('{tube}', 'U', ARRAY({path}));
    RETURN NULL;
END
$f$;
CREATE TRIGGER resolve_{number} AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {function}();
CREATE TRIGGER resolve_{number}_all BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();
"""


def _resolve_in_writers(session: Conn, documents: Sequence[Document]) -> None:
    """Who changes a relation touches the documents that it sees."""
    relations = [(document, link) for document in documents for link in document.relations]
    for number, (document, link) in enumerate(relations):
        links = (
            f"array_remove(ARRAY[CASE WHEN TG_OP <> 'INSERT' THEN OLD.{link.column} END,"
            f" CASE WHEN TG_OP <> 'DELETE' THEN NEW.{link.column} END], NULL)"
        )
        assert link.path is not None
        statement = _IN_WRITER.format(
            function=f"shop.resolve_{number}",
            number=number,
            tube=document.name,
            root=document.root.table,
            key=_key(document.root),
            table=link.table,
            path=link.path.replace("%(keys)s", links).replace("%%", "%"),
        )
        session.execute(statement.encode())


def _key(root: Link) -> str:
    """A document's key by the columns of the root table."""
    return f"json_build_array({', '.join(root.by)})::text" if len(root.by) > 1 else root.column


# --- the worker ------------------------------------------------------------------------------------


def _purge_before_insert(patch: pytest.MonkeyPatch, _dsn: str) -> None:
    """A relation is answered at once, and its documents are touched later, if the worker lives so long."""
    send = RelationsSink.send
    tasks: set[asyncio.Task[None]] = set()

    async def send_later(sink: RelationsSink, batch: Batch) -> None:
        await asyncio.sleep(_DELAY)
        await send(sink, batch)

    async def answer(sink: RelationsSink, batch: Batch) -> Sequence[Result]:
        task = asyncio.create_task(send_later(sink, batch))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return [OK] * len(batch)

    patch.setattr(RelationsSink, "send", answer)


def _older_snapshot(patch: pytest.MonkeyPatch, dsn: str) -> None:
    """Paths are read in a snapshot of before, as on a standby that lags."""
    session = psycopg.connect(dsn, options="-c lock_timeout=1s")
    session.isolation_level = IsolationLevel.REPEATABLE_READ
    session.execute("SELECT 1")
    reads = 0

    async def touch(
        sink: RelationsSink, connection: psycopg.AsyncConnection, _: Batch, path: str, ids: Sequence[Id]
    ) -> Result:
        nonlocal reads
        options = sink._options
        reads += 1
        try:
            keys = [
                row[0] for row in session.execute(path.encode(), {"keys": array_of(options.key_type, ids)})
            ]
        finally:
            if session.info.transaction_status == TransactionStatus.INERROR or reads % _LAG == 0:
                session.rollback()
                session.execute("SELECT 1")
        statement = f"SELECT tube_document_touch(%s, 'U', %s::{options.document_key_type}[])"
        await connection.execute(statement.encode(), (options.tube, keys))
        return OK

    patch.setattr(RelationsSink, "_touch", touch)


def _purge_newer_touches(patch: pytest.MonkeyPatch, dsn: str) -> None:
    """With the pods whose documents were sent, those go whose keys are among them, whenever they came."""
    sent: dict[str, list[str]] = {}
    send, mark, purge = MemorySink.send, TubeSource.mark, TubeSource.purge

    async def note(sink: MemorySink, batch: Batch) -> Sequence[Result]:
        results = await send(sink, batch)
        sent.setdefault(batch.tube, []).extend(str(document.id) for document in batch)
        return results

    def delete(source: TubeSource) -> None:
        tube = str(source._arguments["tube"])
        if tube in sent:
            with psycopg.connect(dsn, autocommit=True) as session:
                session.execute(
                    f"DELETE FROM tube.{tube} WHERE ids <> '{{}}' AND ids::text[] <@ %s".encode(),
                    (sent.pop(tube),),
                )

    async def delete_and_mark(
        source: TubeSource, *limits: Any, done: Sequence[int] = (), **options: Any
    ) -> list[Pod]:
        if done:
            delete(source)
        return await mark(source, *limits, done=done, **options)

    async def delete_and_purge(source: TubeSource, seqs: Sequence[int]) -> int:
        delete(source)
        return await purge(source, seqs)

    patch.setattr(MemorySink, "send", note)
    patch.setattr(TubeSource, "mark", delete_and_mark)
    patch.setattr(TubeSource, "purge", delete_and_purge)


def _read_before_mark(patch: pytest.MonkeyPatch, _dsn: str) -> None:
    """A touch counts as delivered with a document that was read before it."""

    def add(machine: inflight.InFlight, shard: Any, pod: Pod) -> None:
        keys = dict.fromkeys(pod.ids)
        machine._left[pod.seq] = len(keys)
        for key in keys:
            flight = next((one for one in shard.flights if key in one), None)
            if flight is None:
                machine._wait(shard, key, pod.seq)
            else:
                flight[key] = inflight._join(flight[key], pod.seq)

    patch.setattr(inflight.InFlight, "_add_overlapping", add)


BUGS = (
    Bug("left-out relation", change=_leave_out),
    Bug("old side forgotten", before=_sql("(VALUES (o.id, 1), (n.id, 2))", "(VALUES (n.id, 2))")),
    Bug("own id instead of link values", change=_by_own_id),
    Bug("columns of where forgotten", change=_without_where),
    Bug("TRUNCATE forgotten", before=_sql("PERFORM <put>('D', ", "PERFORM ('D', ")),
    Bug("purge before insert", patch=_purge_before_insert),
    Bug("resolved with an older snapshot", patch=_older_snapshot),
    Bug("resolved in the writer", change=_own_links_only, after=_resolve_in_writers),
    Bug("purge of newer touches", patch=_purge_newer_touches),
    Bug("read before mark", patch=_read_before_mark),
)
