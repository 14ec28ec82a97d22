"""The doctor's look at backfills: nothing else reports the rows that an unfinished one has left."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from pytube.backfill.queries import STUCK
from pytube.health.findings import Check, Look, fail, judged, ok, warn
from pytube.tubes.queries import within

# Of each table the last one; an operator has ended a cancelled or superseded one.
_LAST: Final = """
    SELECT DISTINCT ON (b.tube, b.relation) b.tube, b.tbl, b.state, b.paused, b.note,
        b.pid IS NULL AND NOT b.by_worker AND b.state IN ('waiting', 'inserting')
    FROM {s}.tube_backfill_list() AS b JOIN {s}.tube_list() AS l ON l.tube = b.tube AND l.tbl = b.relation
    ORDER BY b.tube, b.relation, b.backfill_id DESC
"""


def check_backfills(look: Look) -> Iterator[Check]:
    """Whether the last backfill of each attached table has come to its end, or is on its way there."""
    found = [
        check for row in look.connection.execute(within(_LAST, look.schema)) for check in _check(look, *row)
    ]
    yield from found
    if not found:
        yield ok(
            "backfills", "the last one of each table has finished, was ended by an operator, or is under way"
        )


def _check(
    look: Look, tube: str, table: str, state: str, is_paused: bool, note: str | None, is_left: bool
) -> Iterator[Check]:
    subject, of = f"backfill of {table}", shlex.join([tube, "--table", table])
    reason = "" if note is None else f": {note}"
    if state == "failed":
        finding = f"it failed, so documents of {tube} may be missing or old{reason}"
        check = fail(subject, finding, f"fix the cause, then: pytube backfill start {of}")
    elif state not in ("waiting", "inserting"):
        return
    elif is_paused:
        check = warn(
            subject, f"it is paused, so not all rows are sent to {tube}", f"pytube backfill resume {of}"
        )
    elif is_left or (note or "").startswith(STUCK):
        finding = f"no process works on it, so not all rows are sent to {tube}{reason}"
        check = warn(subject, finding, f"fix the cause, if one is named, then: pytube backfill resume {of}")
    else:
        return
    yield judged(check, look.config, tube)
