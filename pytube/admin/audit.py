"""The audit of operators' actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from pytube.errors import UnknownTube
from pytube.tubes.calls import rows_of, value_of

_LIST = "SELECT * FROM {s}.tube_audit_list(%(tube)s, %(limit)s)"
_EXISTS = """
    SELECT EXISTS (SELECT FROM {s}.tube_list() AS l WHERE l.tube = %(tube)s)
        OR EXISTS (SELECT FROM {s}.outbox_list() AS l WHERE l.outbox = %(tube)s)
"""


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
    """Operators' actions, the latest first: on `tube`, or on any, also on dropped ones.

    Raises:
        UnknownTube: there is no tube or outbox `tube`, and the audit knows of none.
    """
    rows = rows_of(Action, connection, schema, _LIST, tube=tube, limit=limit)
    if tube is not None and not rows and not value_of(connection, schema, _EXISTS, tube=tube):
        raise UnknownTube(
            f"there is no tube or outbox {tube!r}, and the audit has no entries for it; "
            "`pytube tube list` and `pytube outbox list` list the names"
        )
    return rows
