"""The page of one parked document: as it would be sent now beside what the sink holds, value by value."""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from starlette.requests import Request
from starlette.responses import Response

from pytube import admin
from pytube.admin import Parked, Parking
from pytube.comparison import equal
from pytube.config import Config
from pytube.documents.resolve import resolve
from pytube.errors import PytubeError, UsageError
from pytube.verify import Explanation, explain
from pytube.web.actions import Wanted, buttons, number, text
from pytube.web.html import Html, day_time, facts, link, tag
from pytube.web.site import Place, Site, page

_MOST = 1000
"""Values of a document that are shown."""


class Mark(enum.StrEnum):
    """How a value differs."""

    SAME = "same"
    DIFFERENT = "different"
    SOURCE_ONLY = "only in the source"
    SINK_ONLY = "only at the sink"
    UNKNOWN = "not compared"


_SIGNS = {Mark.SAME: "=", Mark.DIFFERENT: "≠", Mark.SOURCE_ONLY: "+", Mark.SINK_ONLY: "−", Mark.UNKNOWN: "?"}
_ALIKE = (Mark.SAME, Mark.UNKNOWN)


def parked(site: Site, request: Request) -> Response:
    """The page of a document that is, or was, parked."""
    given = request.query_params
    tube, key, host = text(given, "tube"), text(given, "key"), given.get("host")
    shard = number(given, "shard")
    if shard is None:
        raise UsageError("'shard' is missing in the address of this page; begin at the overview")
    place = site.place(host)
    with place.connect() as connection:
        found = admin.list_parked(connection, Parking(tube, shard, key), place.schema, 1)
        sent = _sent(connection, place, found[0]) if found else None
    wanted = [Wanted(action, tube, host, None, shard, key) for action in ("retry", "drop")]
    content = [
        tag("p", link(f"Tube {tube}", "/tube", name=tube, host=host)),
        *(_parking(found[0]) if found else [tag("p", "It is not parked (any more).", class_="notice")]),
        buttons(request, *wanted) if found else None,
        *_documents(place, tube, shard, key),
        *([] if sent is None else [tag("h2", "As it was sent when it failed"), tag("p", tag("code", sent))]),
    ]
    return page(request, f"Document {key} of shard {shard}", content)


def _parking(row: Parked) -> Iterator[Html]:
    retried = "never" if row.retried_at is None else day_time(row.retried_at)
    yield tag("h2", "Why it is parked")
    yield tag("p", tag("code", row.error), class_="notice")
    yield facts(
        {
            "attempts": row.attempts,
            "failed first": day_time(row.first_at),
            "parked": day_time(row.parked_at),
            "retried manually": retried,
        }
    )


def _sent(connection: psycopg.Connection, place: Place, row: Parked) -> str | None:
    """The document that was sent, if it is kept and this role may see it."""
    try:
        document = admin.parked_document(connection, row.park_id, place.schema)
    except UsageError as error:
        return f"not shown: {error}"
    return None if document is None else document.decode(errors="backslashreplace")


def _documents(place: Place, tube: str, shard: int, key: str) -> Iterator[Html]:
    yield tag("h2", "Now: the source beside the sink")
    try:
        explanation = _explained(place.config, tube, shard, key)
    except PytubeError as error:
        yield tag("p", f"The documents were not compared: {error}", class_="notice")
        return
    yield tag("ul", *(tag("li", sentence) for sentence in explanation.sentences))
    source, sink = explanation.source, explanation.sink
    is_known = source.unknown is None and sink.unknown is None
    lines = compared(
        explanation.held if is_known else source.document,
        sink.document,
        has_source=None if source.unknown is not None else source.exists,
        has_sink=None if sink.unknown is not None else sink.exists,
    )
    if lines:
        yield _table(lines)


def _explained(config: Config | None, tube: str, shard: int, key: str) -> Explanation:
    if config is None:
        raise UsageError("start pytube web with the configuration of the workers (--config)")
    if tube not in config.tubes:
        raise UsageError(f"the configuration has no [tube.{tube}], which says where its sink is")
    # Resolved each time: it may have been applied since the pages are shown.
    return asyncio.run(explain(resolve(config, [tube]), tube, key, shard=shard))


def _table(lines: list[Line]) -> Html:
    shown, left, differing = chosen(lines, _MOST)
    rest = f"{left} more values are not shown, {differing} of which differ." if left else None
    are_compared = lines[0].mark is not Mark.UNKNOWN
    count = sum(line.mark is not Mark.SAME for line in lines)
    said = f"{count} of {len(lines)} values differ." if are_compared else "Nothing was compared: see above."
    names = ("difference", "value", "would be sent", "at the sink")
    table = tag(
        "table",
        tag("caption", said),
        tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names))),
        tag("tbody", *map(_row, shown)),
        class_="fold compare",
    )
    return tag("div", table, tag("p", rest, class_="notice") if rest else None)


def _row(line: Line) -> Html:
    return tag(
        "tr",
        tag(
            "td",
            tag("span", _SIGNS[line.mark], aria_hidden="true"),
            " ",
            line.mark.value,
            data_label="difference",
        ),
        tag("th", tag("code", line.path), scope="row", data_label="value"),
        tag("td", _value(line.source), data_label="would be sent"),
        tag("td", _value(line.sink), data_label="at the sink"),
        class_=None if line.mark in _ALIKE else "differs",
    )


def _value(shown: str | None) -> Html:
    return tag("span", "(none)", class_="quiet") if shown is None else tag("span", shown, class_="value")


# --- two documents, value by value ------------------------------------------------------------------

_DEEPEST: Final = 40
"""Levels that are split into lines; deeper nesting is one value."""
_LONGEST: Final = 20_000
"""Characters of one value that are shown."""
_Path = tuple[str | int, ...]


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
    one = dict(_values((), source)) if has_source else {}
    other = dict(_values((), sink)) if has_sink else {}
    is_known = has_source is not None and has_sink is not None
    lines = []
    for path in [*one, *(path for path in other if path not in one)]:
        if not is_known:
            mark = Mark.UNKNOWN
        elif path not in other:
            mark = Mark.SOURCE_ONLY
        elif path not in one:
            mark = Mark.SINK_ONLY
        else:
            mark = Mark.SAME if equal(one[path], other[path]) else Mark.DIFFERENT
        lines.append(Line(_shown_path(path), _text(one, path), _text(other, path), mark))
    return lines


def _values(path: _Path, value: Any) -> Iterator[tuple[_Path, Any]]:
    """The values of a document that are neither objects nor lists, or are empty ones, by their paths."""
    parts: Iterable[tuple[str | int, Any]] | None = enumerate(value) if isinstance(value, list) else None
    parts = sorted(value.items()) if isinstance(value, dict) else parts
    if parts is None or not value or len(path) == _DEEPEST:
        yield path, value
        return
    for name, inner in parts:
        yield from _values((*path, name), inner)


def _shown_path(path: _Path) -> str:
    text = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in path)
    return text.removeprefix(".") or "(the whole)"


def _text(values: Mapping[_Path, Any], path: _Path) -> str | None:
    if path not in values:
        return None
    text = json.dumps(values[path], ensure_ascii=False)
    left = len(text) - _LONGEST
    return text if left <= 0 else f"{text[:_LONGEST]}… ({left} more characters)"


def chosen(lines: Sequence[Line], most: int) -> tuple[list[Line], int, int]:
    """At most so many lines, differing ones before the others, in their order.

    Returns:
        The lines; how many are left out; how many of these differ.
    """
    ranked = sorted(range(len(lines)), key=lambda at: lines[at].mark is Mark.SAME)
    kept = sorted(ranked[:most])
    left = ranked[most:]
    return [lines[at] for at in kept], len(left), sum(lines[at].mark is not Mark.SAME for at in left)
