"""Two documents side by side, value by value, with what differs."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pytube.comparison import equal

_DEEPEST: Final = 40
"""Levels that are taken apart; what is nested more deeply is one value."""
_LONGEST: Final = 20_000
"""Characters of one value that are shown."""
_ABSENT: Final = object()


class Mark(enum.StrEnum):
    """How a value differs."""

    SAME = "same"
    DIFFERENT = "different"
    SOURCE_ONLY = "only in the source"
    SINK_ONLY = "only at the sink"
    UNKNOWN = "not compared"


@dataclass(frozen=True, slots=True)
class Line:
    """One value of two documents."""

    path: str
    source: str | None
    """As it would be sent; None: there is none."""
    sink: str | None
    mark: Mark


def compared(source: Any, sink: Any, *, has_source: bool | None, has_sink: bool | None) -> list[Line]:
    """The values of both documents, as `pytube verify` compares them: `1.0` is `1`, and `true` is not.

    `has_source` and `has_sink` say whether there is a document; with None, where that is not known,
    nothing is said to differ.
    """
    lines = list(_lines("", source if has_source else _ABSENT, sink if has_sink else _ABSENT, _DEEPEST))
    if has_source is None or has_sink is None:
        return [replace(line, mark=Mark.UNKNOWN) for line in lines]
    return lines


def _lines(path: str, source: Any, sink: Any, levels: int) -> Iterator[Line]:
    if source is _ABSENT and sink is _ABSENT:
        return
    one, other = _parts(source), _parts(sink)
    differ_in_kind = source is not _ABSENT and sink is not _ABSENT and type(one) is not type(other)
    if not levels or differ_in_kind or not (one or other):
        yield _line(path, source, sink)
        return
    empty: dict[Any, Any] = {}
    one, other = one or empty, other or empty
    for name in [*one, *(name for name in other if name not in one)]:
        inner = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}" if path else name
        yield from _lines(inner, one.get(name, _ABSENT), other.get(name, _ABSENT), levels - 1)


class _Items(dict[int, Any]):
    """The items of a list by number, which are no fields."""


def _parts(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, dict):
        return dict(sorted(value.items()))
    return _Items(enumerate(value)) if isinstance(value, list) else None


def _line(path: str, source: Any, sink: Any) -> Line:
    if sink is _ABSENT:
        mark = Mark.SOURCE_ONLY
    elif source is _ABSENT:
        mark = Mark.SINK_ONLY
    else:
        mark = Mark.SAME if equal(source, sink) else Mark.DIFFERENT
    return Line(path or "(the whole)", _text(source), _text(sink), mark)


def _text(value: Any) -> str | None:
    if value is _ABSENT:
        return None
    text = json.dumps(value, ensure_ascii=False)
    left = len(text) - _LONGEST
    return text if left <= 0 else f"{text[:_LONGEST]}… ({left} more characters)"


def chosen(lines: Sequence[Line], most: int) -> tuple[list[Line], int, int]:
    """At most so many lines, those that differ before the others, in their order.

    Returns:
        The lines; how many are left out; how many of these differ.
    """
    ranked = sorted(range(len(lines)), key=lambda at: lines[at].mark is Mark.SAME)
    kept = sorted(ranked[:most])
    left = ranked[most:]
    return [lines[at] for at in kept], len(left), sum(lines[at].mark is not Mark.SAME for at in left)
