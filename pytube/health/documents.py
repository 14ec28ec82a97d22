"""What the doctor says of declared documents: whether the database follows what the file declares."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from pytube.config import Config
from pytube.counts import say_count
from pytube.documents.apply import Documents
from pytube.documents.plan import Plan, State
from pytube.documents.survey import Refused, survey
from pytube.health.findings import Check, fail, ok, warn

DOCUMENT = "document "
"""The subject of a finding begins with it, and ends with the name."""
_LOOK = "look at `pytube plan`, then run `pytube apply`"


def check_documents(connection: psycopg.Connection, schema: str, config: Config) -> Iterator[Check]:
    """Drift: from the file to what was applied, and from that to what is followed; missing indexes."""
    for one in survey(config, connection, Documents(connection, schema)):
        if isinstance(one, Refused):
            finding, _, remedy = one.problem.rpartition("; ")
            yield fail(_subject(one.name), finding or remedy, remedy)
            continue
        yield _state(one)
        for index in one.missing_indexes:
            statement, _, reason = index.partition(";  -- ")
            yield warn(f"indexes of {one.name}", f"one is missing {reason}: whole tables are read", statement)


def _subject(name: str) -> str:
    return f"{DOCUMENT}{name}"


def _state(plan: Plan) -> Check:
    subject = _subject(plan.name)
    match plan.state:
        case State.APPLIED:
            return ok(subject, f"applied; it follows {say_count(len(plan.followed), 'link')}")
        case State.NEW:
            return fail(subject, "the file declares it, and it was not applied", f"{_LOOK} --backfill")
        case State.CHANGED:
            finding = "the file declares it otherwise than it was applied"
            return fail(subject, finding, f"{_LOOK} --backfill; or take the file that was applied")
        case State.DRIFTED:
            steps = "; ".join(step.text for step in plan.steps)
            missed = ", which has workers send all documents, as changes were missed"
            return fail(
                subject,
                f"what it follows was changed since it was applied; missing: {steps}",
                f"{_LOOK}{missed if plan.missed_changes else ''}",
            )
        case State.GONE:
            finding = "it was applied, and the file does not declare it any more"
            return warn(subject, finding, "run `pytube apply --prune`, if no other file declares it")
