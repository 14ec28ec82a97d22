"""The page of errors: troubles of the fleet, the classes of `pytube.errors`, and SQLSTATEs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytube import errors
from pytube.errors import SQLSTATES, PytubeError, UsageError
from pytube.health.findings import Kind
from tests.docs.reference.markdown import codes, docstrings, sentence, table

POSTGRES = {
    "0A000": "Postgres has no values there",
    "22003": "a number is too large",
    "22004": "a value is missing",
    "22012": "division by zero",
    "22021": "bytes are not UTF-8",
    "22023": "an argument makes no sense",
    "22P02": "an id does not fit the tube's type",
    "23502": "a field or an id is missing",
    "23505": "another session was first; try again",
    "23514": "a name is too long",
    "25001": "not in this transaction",
    "40001": "another relation got the table's name while it was read; try again",
    "40P01": "deadlock; try again",
    "42501": "a privilege is missing; the hint has the GRANT",
    "42601": "a query is wrong",
    "42703": "no such column",
    "42804": "the tube's keys have another type",
    "42846": "the tube's keys have another type",
    "55P03": "a lock was not available, or other transactions did not end in time; try again",
}
"""SQLSTATEs of Postgres that functions raise."""
_OF_ARGUMENTS = {state for state in POSTGRES if state[:2] in ("22", "42")} - {"42501"} | {"23502", "23514"}
"""A wrong argument: the page has them without their meanings, which messages have."""


def parts() -> Mapping[str, str]:
    """The sections, and the table of SQLSTATEs."""
    said = docstrings(Kind)
    troubles = (f"### {kind}\n\n{_with_remedy(said[kind.name])}" for kind in sorted(Kind))
    kinds = sorted(_kinds(), key=lambda kind: kind.__name__)
    usage = [kind for kind in kinds if issubclass(kind, UsageError)]
    others = [kind for kind in kinds if kind not in usage]
    return {
        "troubles": "\n\n".join(troubles),
        "usage": "\n\n".join(map(_class, usage)),
        "others": "\n\n".join(map(_class, others)),
        "arguments": codes(state for state in POSTGRES if state in _OF_ARGUMENTS),
        "sqlstates": table(
            ("SQLSTATE", "meaning"),
            ((state, said) for state, said in POSTGRES.items() if state not in _OF_ARGUMENTS),
        ),
    }


def _kinds() -> Iterator[type[PytubeError]]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, PytubeError) and kind is not PytubeError:
            yield kind


def _class(kind: type[PytubeError]) -> str:
    """Its section: the SQLSTATE, the exit code unless it is the usual one, its meaning, and the remedy."""
    facts = [state for state, raised in SQLSTATES.items() if raised is kind]
    if kind.exit_code != (UsageError if issubclass(kind, UsageError) else PytubeError).exit_code:
        facts.append(f"exit code {kind.exit_code}")
    shown = f" ({', '.join(facts)})" if facts else ""
    return f"### {kind.__name__}\n\n{_with_remedy(kind.__doc__ or '')}{shown}"


def _with_remedy(text: str) -> str:
    when, _, remedy = " ".join(text.split()).partition(" Remedy: ")
    return sentence(when) + (f" **Remedy:** {sentence(remedy)}" if remedy else "")
