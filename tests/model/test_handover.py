"""The promises of docs/guarantees.md about leaders and delivery hold in all states of the model.

And each bug of the protocol breaks one: what the model leaves out would let one pass.
"""

from __future__ import annotations

import pytest

from tests.model.explorer import explore
from tests.model.handover import Model

LOST = "a pod is purged, and its change is not at the sink"
PLAIN = "the plain sink goes back"
STUCK = "a pod is marked, and the leader does not know of it"


@pytest.mark.parametrize(
    "model",
    [
        Model(),
        Model(versions=1, epochs=3),
        Model(kills=True, losses=True),
        Model(repartitions=True),
        Model(versions=1, renewals=True),
        Model(workers=3, versions=1),
        pytest.param(Model(kills=True, losses=True, renewals=True), marks=pytest.mark.soak),
        pytest.param(Model(epochs=3), marks=pytest.mark.soak),
        pytest.param(Model(epochs=3, kills=True, losses=True, repartitions=True), marks=pytest.mark.soak),
        pytest.param(Model(workers=3, epochs=3), marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_no_state_breaks_a_promise(model: Model) -> None:
    found = explore(model.first(), model.successors, model.broken)
    assert found.wrong is None, f"{found.wrong}: {'; '.join(found.steps)}"


@pytest.mark.parametrize(
    ("model", "promise"),
    [
        (Model(bug="no wait"), PLAIN),
        (Model(bug="no trust"), PLAIN),
        (Model(bug="trust counts from the answer"), PLAIN),
        (Model(bug="releases with unanswered writes"), PLAIN),
        (Model(bug="waits for its own partition alone", repartitions=True), PLAIN),
        (Model(bug="sends again before the answer"), PLAIN),
        (Model(bug="an epoch comes again"), LOST),
        (Model(bug="reads before it marks"), LOST),
        (Model(bug="purges before the answer"), LOST),
        (Model(bug="goes on after a lost mark", losses=True), STUCK),
    ],
    ids=lambda value: value.bug if isinstance(value, Model) else "",
)
def test_a_bug_of_the_protocol_is_found(model: Model, promise: str) -> None:
    found = explore(model.first(), model.successors, model.broken)
    assert found.wrong == promise, found
