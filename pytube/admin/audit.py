"""Who did what by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from pytube.admin.session import rows_of

_LIST = "SELECT * FROM {s}.tube_audit_list(%(tube)s, %(limit)s)"


@dataclass(frozen=True, slots=True)
class Action:
    """One row of the audit."""

    audit_id: int
    done_at: datetime
    done_by: str
    """The role that logged in."""
    client: str | None
    """The `application_name` of its session."""
    action: str
    tube: str | None
    details: Mapping[str, Any]


def audit(
    connection: psycopg.Connection, schema: str = "tube", tube: str | None = None, limit: int = 100
) -> list[Action]:
    """What was done by hand, the latest first: with `tube`, or with any, also with one that is gone."""
    return rows_of(Action, connection, schema, _LIST, tube=tube, limit=limit)
