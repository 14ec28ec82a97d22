"""HTML that can't be injected into: whatever is not `Html` is escaped where it is put in.

And the parts that pages have in common: facts, tables, values in words, and graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from html import escape as _escape
from typing import Any
from urllib.parse import urlencode

from pytube.clock import for_people
from pytube.counts import harmless
from pytube.health.fleet import STATES

_VOID = frozenset({"input", "line", "link", "meta", "path"})
"""Elements without an end. SVG wants the slash, which HTML ignores."""


class Html(str):
    """Text that is HTML already. Only `tag`, `joined` and `document` make it."""

    __slots__ = ()


def plain(value: Any) -> str:
    """A value as text in which every character can be seen.

    A character that reverses the direction of writing could make a key look like another.
    """
    return harmless(str(value))


def joined(parts: Iterable[Any]) -> Html:
    """The parts one after the other; None is left out."""
    return Html(
        "".join(
            part if isinstance(part, Html) else _escape(plain(part)) for part in parts if part is not None
        )
    )


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element.

    An underscore at the end of an attribute's name is dropped (`class_`), others become hyphens. None and
    False leave an attribute out; True gives it without a value.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_escape(plain(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{written} />")
    return Html(f"<{name}{written}>{joined(children)}</{name}>")


def document(title: str, head: Iterable[Any], body: Iterable[Any]) -> Html:
    """A whole page."""
    page = tag(
        "html", tag("head", tag("meta", charset="utf-8"), tag("title", title), *head), *body, lang="en"
    )
    return Html(f"<!doctype html>\n{page}")


def address(path: str, **query: object) -> str:
    """A link of this site; None is left out."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='surrogatepass')}" if given else path


def link(text: Any, path: str, /, **query: object) -> Html:
    """A link to a page of this site."""
    return tag("a", text, href=address(path, **query))


# --- facts, tables, and values in words ---------------------------------------------------------------


def facts(values: Mapping[str, Any]) -> Html:
    """Names and values, as cards."""
    cards = (tag("div", tag("dt", name), tag("dd", dash(value))) for name, value in values.items())
    return tag("dl", *cards, class_="cards")


Columns = Mapping[str, Callable[[Any], Any]]
"""By heading, what a row has there."""


def table(caption: str, columns: Columns, rows: Iterable[Any], *, numbers: int = 0) -> Html:
    """A table whose rows become cards on a narrow screen. The last `numbers` columns hold numbers."""
    classes = dict.fromkeys(list(columns)[len(columns) - numbers :], "number")
    head = (tag("th", heading, scope="col", class_=classes.get(heading)) for heading in columns)
    body = (
        tag(
            "tr",
            *(
                tag("td", tag("span", dash(of(row))), data_label=heading, class_=classes.get(heading))
                for heading, of in columns.items()
            ),
        )
        for row in rows
    )
    parts = tag("thead", tag("tr", *head)), tag("tbody", *body)
    return tag("table", *parts, class_="fold", aria_label=caption)


def length(value: float | None) -> str:
    """A length of time for people."""
    return "–" if value is None or math.isnan(value) else for_people(value)


def ago(value: float | None) -> str | None:
    """How long something is ago."""
    return None if value is None else f"{length(value)} ago"


def short(value: float) -> str:
    """A number with as many digits as matter."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def rate(value: float | None) -> str:
    """How many a second."""
    return "–" if value is None else f"{short(value)}/s"


def count(value: object) -> str:
    """A number that this role may not see is not 0."""
    return "?" if value is None else str(value)


def state(state: str) -> Html:
    """A state, in words and in its color."""
    return tag("span", state, class_=STATES[state])


def dash(value: Any) -> Any:
    """The value, or a dash in place of none."""
    return "–" if value is None or value == "" else value


def clock_time(moment: float) -> str:
    """A time of day, in this machine's zone."""
    return f"{datetime.fromtimestamp(moment).astimezone():%H:%M:%S}"


def day_time(moment: datetime) -> str:
    """A date and a time, in this machine's zone."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


# --- graphs: SVG within the page, so that no script draws them, and nothing is loaded for them ----------

_WIDTH, _HEIGHT = 420, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 10, 24
_POINTS = 300
"""Of a line: about as many as a screen can show."""


def graph(
    title: str, times: Sequence[float], values: Sequence[float], shown: Callable[[float], str], gap: float
) -> Html:
    """A graph with its figures in words, for screen readers.

    Args:
        title: stands above it.
        times: seconds since the epoch, ascending.
        values: as many; NaN where there is none.
        shown: a value for people.
        gap: seconds without a sample, after which the line is interrupted.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        heading = tag("figcaption", tag("strong", title))
        return tag("figure", heading, tag("p", "no sample yet", class_="quiet"), class_="graph")
    last, top = values[-1], _top(max(known))
    words = (
        f"now {'unknown' if math.isnan(last) else shown(last)}, "
        f"at most {shown(max(known))}, since {clock_time(times[0])}"
    )
    caption = tag("figcaption", tag("strong", title), " ", tag("span", words, class_="quiet"))
    picture = tag(
        "svg",
        *_axes(times, shown, top),
        tag("path", d=_path(times, values, gap, top), class_="line") if len(known) > 1 else None,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{title}: {words}",
    )
    return tag("figure", caption, picture, class_="graph")


def _axes(times: Sequence[float], shown: Callable[[float], str], top: float) -> Iterator[Html]:
    for share in (0.0, 0.5, 1.0):
        y = _y(share * top, top)
        yield tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="grid")
        yield tag("text", shown(share * top), x=_LEFT - 6, y=y + 4, text_anchor="end")
    for x, anchor, moment in ((_LEFT, "start", times[0]), (_WIDTH - _RIGHT, "end", times[-1])):
        yield tag("text", clock_time(moment), x=x, y=_HEIGHT - 6, text_anchor=anchor)


def _top(most: float) -> float:
    """The upper end of the scale: 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(most))
    return next(size * step for step in (1, 2, 5, 10) if size * step >= most * (1 - 1e-9))


def _path(times: Sequence[float], values: Sequence[float], gap: float, top: float) -> str:
    first, last = times[0], times[-1]
    span = max(last - first, 1e-9)
    parts: list[str] = []
    before: float | None = None
    for moment, value in _thinned(times, values):
        if math.isnan(value):
            before = None
            continue
        is_gap = before is None or moment - before > max(gap, 2 * span / _POINTS)
        x = _LEFT + (moment - first) / span * (_WIDTH - _LEFT - _RIGHT)
        parts.append(f"{'M' if is_gap else 'L'}{x:.1f} {_y(value, top):.1f}")
        before = moment
    return "".join(parts)


def _thinned(times: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """At most about `_POINTS`: of each stretch the greatest value, so that no peak is lost."""
    step = max(1, math.ceil(len(times) / _POINTS))
    found = []
    for at in range(0, len(times), step):
        stretch = values[at : at + step]
        known = [value for value in stretch if not math.isnan(value)]
        # Without a value for a part of it, a stretch still has one; where all are missing, there is a gap.
        found.append((times[min(at + step, len(times)) - 1], max(known) if known else math.nan))
    return found


def _y(value: float, top: float) -> float:
    return round(_HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM), 1)
