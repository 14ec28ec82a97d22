"""Splits the text of an SQL file into what psql tells apart: SQL, variables, commands, ends.

Quotes, dollar quotes and comments are single pieces of SQL, so nothing within them is taken for
a variable, a command or the end of a statement.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

_LETTER = r"A-Za-z_\x80-\U0010ffff"

_TOKEN = re.compile(
    rf"""
      (?P<comment>   --[^\n]* )
    | (?P<block>     /\* )
    | (?P<escaped>   [eE]'(?:[^'\\]|\\.|'')*(?P<escaped_end>')? )
    | (?P<string>    '(?:[^']|'')*(?P<string_end>')? )
    | (?P<quoted>    "(?:[^"]|"")*(?P<quoted_end>")? )
    | (?P<dollar>    \$(?:[{_LETTER}][{_LETTER}0-9]*)?\$ )
    | (?P<word>      [{_LETTER}][{_LETTER}0-9$]* )
    | (?P<number>    [0-9]+ | \$[0-9]+ )
    | (?P<plain>     :: | := )
    | (?P<defined>   :\{{\?(?P<defined_name>[{_LETTER}0-9]+)\}} )
    | (?P<ident>     :"(?P<ident_name>[{_LETTER}0-9]+)" )
    | (?P<literal>   :'(?P<literal_name>[{_LETTER}0-9]+)' )
    | (?P<raw>       :(?P<raw_name>[{_LETTER}0-9]+) )
    | (?P<command>   \\(?P<command_name>[A-Za-z_]+|.)(?P<arguments>[^\n]*) )
    | (?P<end>       ; )
    | (?P<space>     \s+ )
    | (?P<other>     . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Kind(enum.Enum):
    """What a piece is."""

    SQL = "sql"
    BLANK = "blank"
    """White space or a comment: SQL that is no statement by itself."""

    VARIABLE = "variable"
    COMMAND = "command"
    END = "end"
    """A semicolon that ends a statement."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a file. `text` is as it stands there."""

    kind: Kind
    text: str
    line: int
    name: str = ""
    """Of a variable or a command."""

    style: str = ""
    """How a variable is to be put in: `raw`, `ident`, `literal` or `defined`."""

    arguments: str = ""
    """What follows a command, to the end of its line."""


class Unterminated(Exception):
    """A quote or comment that has no end. `line` is where it begins."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(f"{what} without an end")
        self.line = line


def scan(text: str) -> Iterator[Piece]:
    """The pieces of `text` in order; together they are the text. Raises `Unterminated`."""
    newlines = [match.start() for match in re.finditer("\n", text)]
    position = depth = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None  # `other` takes anything
        line = bisect_left(newlines, position) + 1
        piece = _piece(match, line, depth)
        if piece is None:
            piece = _long_piece(text, match, line)
        elif piece.text in ("(", ")"):
            depth = max(0, depth + (1 if piece.text == "(" else -1))
        elif piece.kind is Kind.END:
            depth = 0
        position += len(piece.text)
        yield piece


def _piece(match: re.Match[str], line: int, depth: int) -> Piece | None:
    """The piece that `match` is; None where only its beginning is known."""
    group, text = match.lastgroup, match[0]
    for kind in ("escaped", "string", "quoted"):
        if match[kind] is not None:
            if match[f"{kind}_end"] is None:
                raise Unterminated("a quote", line)
            return Piece(Kind.SQL, text, line)
    if group in ("block", "dollar"):
        return None
    if group in ("comment", "space"):
        return Piece(Kind.BLANK, text, line)
    if group in ("defined", "ident", "literal", "raw"):
        return Piece(Kind.VARIABLE, text, line, name=match[f"{group}_name"], style=group)
    if group == "command":
        name, arguments = match["command_name"], match["arguments"]
        return Piece(Kind.COMMAND, text, line, name=name, arguments=arguments)
    # As in psql, a semicolon within parentheses (a rule's actions) ends nothing.
    return Piece(Kind.END if group == "end" and depth == 0 else Kind.SQL, text, line)


def _long_piece(text: str, match: re.Match[str], line: int) -> Piece:
    """A dollar quote or a block comment, up to its end."""
    if match["dollar"] is not None:
        end = text.find(match["dollar"], match.end())
        if end < 0:
            raise Unterminated(f"a quote {match['dollar']}", line)
        return Piece(Kind.SQL, text[match.start() : end + len(match["dollar"])], line)
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, match.start()):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return Piece(Kind.BLANK, text[match.start() : mark.end()], line)
    raise Unterminated("a comment", line)
