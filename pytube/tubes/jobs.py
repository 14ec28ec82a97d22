"""The ledger of jobs that write tubes in units: fan-outs and backfills by Spark."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import dict_row

from pytube.db.errors import translated
from pytube.tubes import queries


def jobs(connection: psycopg.Connection, schema: str, job_id: str | None = None) -> list[dict[str, Any]]:
    """All jobs, or the one of this name, as rows of `tube_job_list`, the newest first."""
    with translated(), connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(queries.within(queries.JOB_LIST, schema), {"job": job_id}).fetchall()
