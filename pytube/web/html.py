"""HTML that can't be injected into: whatever is not `Html` is escaped where it is put in.

And the parts that pages have in common: facts, tables, and values in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape as _escape
from typing import Any
from urllib.parse import urlencode

from pytube.clock import for_people
from pytube.health.fleet import STATES

_VOID = frozenset({"input", "line", "link", "meta", "path"})
"""Elements without an end. SVG wants the slash, which HTML ignores."""


class Html(str):
    """Text that is HTML already. Only `tag`, `joined` and `document` make it."""

    __slots__ = ()


def plain(value: Any) -> str:
    """A value as text in which every character can be seen.

    One that turns the direction of writing around could make a key look like another.
    """
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in str(value)
    )


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


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: int = 0) -> Html:
    """A table whose rows become cards on a narrow screen. The last `numbers` columns hold numbers."""
    first_number = len(headings) - numbers

    def class_of(at: int) -> str | None:
        return "number" if at >= first_number else None

    return tag(
        "table",
        tag(
            "thead",
            tag("tr", *(tag("th", h, scope="col", class_=class_of(n)) for n, h in enumerate(headings))),
        ),
        tag(
            "tbody",
            *(
                tag(
                    "tr",
                    *(
                        tag("td", tag("span", dash(cell)), data_label=headings[at], class_=class_of(at))
                        for at, cell in enumerate(row)
                    ),
                )
                for row in rows
            ),
        ),
        class_="fold",
        aria_label=caption,
    )


def length(value: float | None) -> str:
    """A length of time for people."""
    return "–" if value is None or math.isnan(value) else for_people(value)


def ago(value: float | None) -> str | None:
    """How long something is ago."""
    return None if value is None else f"{length(value)} ago"


def rate(value: float | None) -> str:
    """How many a second."""
    return "–" if value is None else f"{value:.3g}/s" if value < 1000 else f"{value:.0f}/s"


def count(value: object) -> str:
    """A number that this role may not see is not 0."""
    return "?" if value is None else str(value)


def state(state: str) -> Html:
    """A state, in words and in its color."""
    return tag("span", state, class_=STATES[state])


def dash(value: Any) -> Any:
    """The value, or a dash in place of none."""
    return "–" if value is None or value == "" else value
