"""The page of one parked document: as it would be sent now beside what the sink holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
from starlette.requests import Request
from starlette.responses import Response

from pytube import admin
from pytube.admin import Parked, Parking
from pytube.config import Config
from pytube.errors import PytubeError, UsageError
from pytube.verify import Explanation, explain
from pytube.web.actions import Wanted, buttons, number, text
from pytube.web.documents import Line, Mark, chosen, compared
from pytube.web.html import Html, link, tag
from pytube.web.site import Place, Site, day_time, page

_MOST = 1000
"""Values of a document that are shown."""
_SIGNS = {Mark.SAME: "=", Mark.DIFFERENT: "≠", Mark.SOURCE_ONLY: "+", Mark.SINK_ONLY: "−", Mark.UNKNOWN: "?"}
_ALIKE = (Mark.SAME, Mark.UNKNOWN)


def parked(site: Site, request: Request) -> Response:
    """The page of a document that is, or was, parked."""
    given = request.query_params
    tube, key, host = text(given, "tube"), text(given, "key"), given.get("host")
    shard = number(given, "shard")
    if shard is None:
        raise UsageError("the address of this page lacks 'shard'; begin at the overview")
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
    facts = {
        "attempts": row.attempts,
        "failed first": day_time(row.first_at),
        "parked": day_time(row.parked_at),
        "retried by hand": retried,
    }
    yield tag("h2", "Why it is parked")
    yield tag("p", tag("code", row.error), class_="notice")
    yield tag(
        "dl",
        *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()),
        class_="cards",
    )


def _sent(connection: psycopg.Connection, place: Place, row: Parked) -> str | None:
    """What was sent, where it is kept and this role may see it."""
    try:
        document = admin.parked_document(connection, row.park_id, place.schema)
    except UsageError as error:
        return f"not shown: {error}"
    return None if document is None else document.decode(errors="backslashreplace")


def _documents(place: Place, tube: str, shard: int, key: str) -> Iterator[Html]:
    yield tag("h2", "Now: the source beside the sink")
    reason, explanation = _explained(place.config, tube, shard, key)
    if explanation is None:
        yield tag("p", f"The documents were not compared: {reason}", class_="notice")
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


def _explained(
    config: Config | None, tube: str, shard: int, key: str
) -> tuple[str | None, Explanation | None]:
    if config is None:
        return "start pytube web with the configuration of the workers (--config)", None
    if tube not in config.tubes:
        return f"the configuration has no [tube.{tube}], which says where its sink is", None
    try:
        return None, asyncio.run(explain(config, tube, key, shard=shard))
    except PytubeError as error:
        return str(error), None


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
