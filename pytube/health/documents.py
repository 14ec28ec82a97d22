"""What the doctor says of documents, tubes and outboxes that the file declares."""

from __future__ import annotations

from collections.abc import Iterator

from pytube.counts import say_count
from pytube.declarations.model import Kind, Plan, State
from pytube.declarations.survey import survey
from pytube.health.findings import Check, Look, fail, ok, warn

DOCUMENT = "document "
"""The subject of a finding begins with it, and ends with the name."""
_LOOK = "run `pytube plan`, then `pytube apply`"
_RESEND = "run `pytube plan`, then `pytube apply --backfill`"


def check_documents(look: Look) -> Iterator[Check]:
    """Drift between the file, the applied declaration, and the links; missing indexes."""
    for one in survey(look.config, look.connection, look.schema, kinds=(Kind.DOCUMENT,)):
        subject = f"{DOCUMENT}{one.name}"
        if one.problem is not None:
            yield _refused(subject, one.problem)
            continue
        applied = f"applied; it follows {say_count(len(one.followed), 'link')}"
        yield _state(subject, one, applied, drift="its set of links", look=_RESEND)
        for index in one.missing_indexes:
            statement, _, reason = index.partition(";  -- ")
            yield warn(f"indexes of {one.name}", f"one is missing {reason}: whole tables are read", statement)


def check_declarations(look: Look) -> Iterator[Check]:
    """Drift of tubes and outboxes: between the file, the applied declaration, and the database."""
    for one in survey(look.config, look.connection, look.schema, kinds=(Kind.TUBE, Kind.OUTBOX)):
        subject = f"declared {one.kind} {one.name}"
        if one.problem is not None:
            yield _refused(subject, one.problem)
        else:
            yield _state(subject, one, "applied", drift="it", look=_LOOK)


def _refused(subject: str, problem: str) -> Check:
    finding, _, remedy = problem.rpartition("; ")
    return fail(subject, finding or remedy, remedy)


def _state(subject: str, plan: Plan, applied: str, *, drift: str, look: str) -> Check:
    """The finding; `applied`, `drift` and `look` are the words for this kind."""
    match plan.state:
        case State.APPLIED:
            return ok(subject, applied)
        case State.NEW:
            return fail(subject, "the file declares it, but it was not applied", look)
        case State.CHANGED:
            finding = "the file's declaration differs from the applied one"
            return fail(subject, finding, f"{look}; or use the file that was applied")
        case State.DRIFTED:
            steps = "; ".join(step.text for step in plan.steps)
            missed = ", which makes workers resend all documents, as changes were missed"
            return fail(
                subject,
                f"{drift} was changed since it was applied; missing: {steps}",
                f"{_LOOK}{missed if plan.missed_changes else ''}",
            )
        case _:
            finding = "it was applied, but the file no longer declares it"
            return warn(subject, finding, "run `pytube apply --prune`, if no other file declares it")
