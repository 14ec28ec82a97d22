"""All states that a model can reach, breadth first; where one is wrong, the shortest way there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Step(Generic[State]):
    """What somebody does in one state, and the state after it."""

    name: str
    """Such as `w1 mark`."""
    state: State
    wrong: str | None = None
    """The promise that the step itself breaks."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What was found."""

    states: int
    wrong: str | None = None
    """The promise that is broken; None: none is."""
    steps: tuple[str, ...] = ()
    """The shortest way to where it is."""


def explore(
    first: State,
    successors: Callable[[State], Iterable[Step[State]]],
    broken: Callable[[State], str | None],
) -> Explored:
    """Look at each state once, until a promise is broken.

    Args:
        first: where all begins.
        successors: the steps that are possible in a state.
        broken: the promise that a state breaks; None: it breaks none.
    """
    came: dict[State, tuple[State, str] | None] = {first: None}
    layer = [first]
    while layer:
        following: list[State] = []
        for state in layer:
            for step in successors(state):
                if step.wrong is not None:
                    return Explored(len(came), step.wrong, (*_way(came, state), step.name))
                if step.state in came:
                    continue
                came[step.state] = state, step.name
                if (wrong := broken(step.state)) is not None:
                    return Explored(len(came), wrong, tuple(_way(came, step.state)))
                following.append(step.state)
        layer = following
    return Explored(len(came))


def _way(came: dict[State, tuple[State, str] | None], state: State) -> Iterator[str]:
    names: list[str] = []
    while (step := came[state]) is not None:
        state, name = step
        names.append(name)
    return reversed(names)
