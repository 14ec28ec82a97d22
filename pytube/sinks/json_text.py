"""JSON texts that are cut into the values of their top level, each as it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_BLANKS = re.compile(r"[ \t\n\r]*")
# Numbers stay texts, because Python refuses integers of 4300 digits.
_VALUES = json.JSONDecoder(parse_int=str, parse_float=str)


def begins_with(sign: str, text: str) -> bool:
    """Whether that is the first character of the JSON text: a brace, or a bracket."""
    return text.lstrip(" \t\n\r").startswith(sign)


def members(text: str) -> Iterator[tuple[str, Any, str]]:
    """Each name of an object, its value, in which numbers are texts, and the value's text.

    Raises:
        ValueError: it is not a JSON object.
    """
    rest = _Text(text)
    rest.expect("{")
    if not rest.takes("}"):
        while True:
            name, own = rest.value()
            if not own.startswith('"'):
                raise ValueError("it is not valid JSON: a name is not a string")
            rest.expect(":")
            yield name, *rest.value()
            if rest.takes("}"):
                break
            rest.expect(",")
    rest.expect_end()


def elements(text: str) -> Iterator[str]:
    """The own text of each element of an array; raises `ValueError` as `members`."""
    rest = _Text(text)
    rest.expect("[")
    if not rest.takes("]"):
        while True:
            yield rest.value()[1]
            if rest.takes("]"):
                break
            rest.expect(",")
    rest.expect_end()


class _Text:
    """A text, and how far it was read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._skip_blanks()

    def takes(self, sign: str) -> bool:
        """Go beyond `sign` if it comes next; whether it does."""
        comes = self._text.startswith(sign, self._at)
        if comes:
            self._at += len(sign)
            self._skip_blanks()
        return comes

    def expect(self, sign: str) -> None:
        if not self.takes(sign):
            raise ValueError(f"it is not valid JSON: {sign!r} is missing at character {self._at}")

    def expect_end(self) -> None:
        if self._at < len(self._text):
            raise ValueError("it is not valid JSON: more text follows its end")

    def value(self) -> tuple[Any, str]:
        """The next value, decoded, and its text."""
        start = self._at
        try:
            value, self._at = _VALUES.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            raise ValueError(f"it is not valid JSON: {error}") from None
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        text = self._text[start : self._at]
        self._skip_blanks()
        return value, text

    def _skip_blanks(self) -> None:
        found = _BLANKS.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
