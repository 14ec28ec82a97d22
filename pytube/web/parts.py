"""Parts of pages: facts, tables, and values in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytube.clock import for_people
from pytube.web.html import Html, tag

STATES = {
    "leads": "good",
    "lost": "bad",
    "stopped": "bad",
    "sink down": "bad",
    "source down": "bad",
    "free": "warn",
    "paused": "warn",
    "pausing": "warn",
}
"""The states of a partition, the good one first, and how each is shown."""


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


def count(value: float | None) -> str:
    """A number that this role may not see is not 0."""
    return "?" if value is None else f"{value:.0f}"


def state(state: str) -> Html:
    """A state, in words and in its color."""
    return tag("span", state, class_=STATES[state])


def dash(value: Any) -> Any:
    """The value, or a dash in place of none."""
    return "–" if value is None or value == "" else value
