"""What the doctor says of tubes and outboxes that the file declares: whether the database is like that."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from pytube.config import Config
from pytube.declarations.apply import Declarations
from pytube.declarations.model import Plan, Refused
from pytube.declarations.survey import survey
from pytube.documents.plan import State
from pytube.health.findings import Check, fail, ok, warn

_LOOK = "look at `pytube plan`, then run `pytube apply`"


def check_declarations(connection: psycopg.Connection, schema: str, config: Config) -> Iterator[Check]:
    """Drift: from the file to what was applied, and from that to what is there."""
    for one in survey(config, Declarations(connection, schema)):
        subject = f"declared {one.kind} {one.name}"
        if isinstance(one, Refused):
            finding, _, remedy = one.problem.rpartition("; ")
            yield fail(subject, finding or remedy, remedy)
        else:
            yield _state(subject, one)


def _state(subject: str, plan: Plan) -> Check:
    match plan.state:
        case State.APPLIED:
            return ok(subject, "applied")
        case State.NEW:
            return fail(subject, "the file declares it, and it was not applied", _LOOK)
        case State.CHANGED:
            finding = "the file declares it otherwise than it was applied"
            return fail(subject, finding, f"{_LOOK}; or take the file that was applied")
        case State.DRIFTED:
            steps = "; ".join(step.text for step in plan.steps)
            missed = ", which has workers send all documents, as changes were missed"
            return fail(
                subject,
                f"it was changed since it was applied; missing: {steps}",
                f"{_LOOK}{missed if plan.missed_changes else ''}",
            )
        case State.GONE:
            finding = "it was applied, and the file does not declare it any more"
            return warn(subject, finding, "run `pytube apply --prune`, if no other file declares it")
