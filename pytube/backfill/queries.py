"""The statements of backfills. Sessions have pytube's schema first in their search path."""

from __future__ import annotations

from typing import Final

STUCK: Final = "can't continue"
"""How the note begins of one whose process has given up."""

CREATE: Final = """
    SELECT tube_backfill_create(
        %(tube)s, %(table)s::oid::regclass, %(order_col)s, %(supersede)s, %(by_worker)s)
"""
COMMAND: Final = "SELECT (tube_backfill_command(%(backfill)s, %(command)s)).state"
LIST: Final = """
    SELECT l.*, l.relation::oid AS oid,
        CASE WHEN l.state IN ('waiting', 'finished') THEN l.rows_done
            WHEN l.state IN ('inserting', 'delivering')
                THEN l.rows_done - tube_backfill_waiting(l.backfill_id)
        END AS rows_delivered
    FROM tube_backfill_list(%(tube)s) AS l
"""
ROOTS: Final = """
    SELECT l.tbl::oid AS oid, l.tbl::text AS name FROM tube_list() AS l
    WHERE l.tube = %(tube)s AND l.root ORDER BY 1
"""
FAMILY: Final = """
    SELECT DISTINCT l.tube, l.companion_of IS NULL FROM tube_list() AS l
    WHERE %(tube)s IN (l.tube, l.companion_of) ORDER BY 2, 1
"""
UNTAKEN: Final = """
    SELECT b.backfill_id, b.tube FROM tube_backfill AS b
    WHERE b.tube = ANY(%(tubes)s) AND b.by_worker AND b.state IN ('waiting', 'inserting') AND NOT b.paused
        AND b.backfill_id IN (SELECT l.backfill_id FROM tube_backfill_list() AS l WHERE l.pid IS NULL)
    ORDER BY b.backfill_id
"""

TIDY: Final = "SELECT tube_backfill_tidy()"

LOCK: Final = "SELECT tube_backfill_lock(%(backfill)s)"
UNLOCK: Final = "SELECT tube_backfill_unlock(%(backfill)s)"
HOLDERS: Final = "SELECT xid, holder FROM tube_backfill_holders(%(xids)s)"
COLLECT: Final = "SELECT tube_backfill_collect(%(backfill)s)"

# These three give the same columns.
NOTE: Final = """
    SELECT tube, table_name, state, paused, rows_done, rows_total, note
    FROM tube_backfill_note(%(backfill)s, %(note)s)
"""
CHUNK: Final = """
    SELECT tube, table_name, state, paused, rows_done, rows_total, note
    FROM tube_backfill_chunk(%(backfill)s, %(pods)s, %(rate)s)
"""
STATE: Final = """
    SELECT tube, table_name, state, paused, rows_done, rows_total, note
    FROM tube_backfill WHERE backfill_id = %(backfill)s
"""
WAITING: Final = "SELECT tube_backfill_waiting(%(backfill)s)"
PRESSURE: Final = """
    SELECT waiting, replica, replica_lag, replica_behind
    FROM tube_backfill_pressure(%(tube)s, %(pods_limit)s)
"""

OF_WORKERS: Final = (UNTAKEN, TIDY, LOCK, UNLOCK, HOLDERS, COLLECT, NOTE, CHUNK, STATE, PRESSURE)
"""The statements that run a backfill."""
