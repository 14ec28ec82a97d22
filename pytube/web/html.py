"""HTML that can't be injected into: whatever is not `Html` is escaped where it is put in."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape as _escape
from typing import Any
from urllib.parse import urlencode

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
