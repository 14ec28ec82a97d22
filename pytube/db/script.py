r"""Runs our SQL files as psql would, without psql.

It knows the part of psql that the files keep to: `\ir`, `\if`, `\elif`, `\else`, `\endif`,
`\set`, `\unset`, `\gset`, `\echo`, and `:name`, `:"name"`, `:'name'`, `:{?name}`. It always
stops at the first error, whatever ON_ERROR_STOP says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import psycopg
from psycopg import sql

from pytube.db.errors import describe, translate
from pytube.db.scanner import Kind, Piece, Unterminated, scan
from pytube.errors import PytubeError

_TRUE = ("true", "t", "yes", "y", "on", "1")
_FALSE = ("false", "f", "no", "n", "off", "0", "")
_ARGUMENT = re.compile(r"""\s*((?:'(?:[^'\\]|''|\\.)*'|"[^"]*"|[^\s'"])+)""", re.DOTALL)
_ARGUMENT_PART = re.compile(
    r"""'(?P<quoted>(?:[^'\\]|''|\\.)*)'|:\{\?(?P<defined>\w+)\}|:'(?P<literal>\w+)'"""
    r"""|:"(?P<ident>\w+)"|:(?P<raw>\w+)|(?P<text>.)""",
    re.DOTALL,
)


class ScriptError(PytubeError):
    """An SQL file failed; the message names file and line."""


class _Branch:
    r"""One `\if` up to its `\endif`."""

    def __init__(self, line: int, active: bool, parent: bool) -> None:
        self.line = line
        self.active = active and parent
        self.taken = active or not parent
        self.last = False

    def turn(self, condition: Callable[[], bool], last: bool) -> None:
        """On to the next part, which runs if `condition` does and no part before it ran."""
        self.active = not self.taken and condition()
        self.taken = self.taken or self.active
        self.last = last


class Script:
    """An interpreter over one connection. Variables outlive a file, as in psql."""

    def __init__(self, connection: psycopg.Connection, variables: Mapping[str, str]) -> None:
        """`variables` are what `psql -v` would set."""
        self._connection = connection
        self.variables = dict(variables)

    def run(self, path: Path) -> None:
        """Run a file, and those that it includes, to the end.

        Raises:
            ScriptError: the file is faulty, or Postgres refused a statement of it.
            PytubeError: the type of an error that our SQL raised, or of a lost connection.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ScriptError(f"{path}: can't be read: {error.strerror}") from error
        _File(self, path).run(text)

    def execute(self, statement: str) -> psycopg.Cursor:
        """Run one statement through the simple protocol."""
        return self._connection.execute(statement.encode(), prepare=False)

    def value(self, style: str, name: str, otherwise: str) -> str:
        """A variable in one of psql's styles; `otherwise` when it is not set."""
        if style == "defined":
            return "TRUE" if name in self.variables else "FALSE"
        if name not in self.variables:
            return otherwise
        value = self.variables[name]
        if style == "ident":
            return sql.Identifier(value).as_string()
        if style == "literal":
            return sql.Literal(value).as_string()
        return value

    def arguments(self, text: str) -> list[str]:
        """The arguments of a command, with variables put in and quotes taken away."""

        def part(match: re.Match[str]) -> str:
            if match["quoted"] is not None:
                return re.sub(r"''|\\(.)", lambda m: m[1] or "'", match["quoted"])
            if match["text"] is not None:
                return match["text"]
            style = str(match.lastgroup)
            return self.value(style, match[style], match[0])

        return [_ARGUMENT_PART.sub(part, found) for found in _ARGUMENT.findall(text)]


class _File:
    """One file while it runs: its open statement and its open branches."""

    def __init__(self, script: Script, path: Path) -> None:
        self._script = script
        self._path = path
        self._branches: list[_Branch] = []
        self._statement: list[str] = []
        self._begins = 0
        """The line of the open statement's first word; 0 when there is none yet."""

    def run(self, text: str) -> None:
        try:
            for piece in scan(text):
                self._take(piece)
        except Unterminated as error:
            raise self._fault(error.line, str(error)) from None
        if self._branches:
            raise self._fault(self._branches[-1].line, r"\if without \endif")
        self._send()

    @property
    def _active(self) -> bool:
        return not self._branches or self._branches[-1].active

    def _take(self, piece: Piece) -> None:
        if piece.kind is Kind.COMMAND:
            self._command(piece)
        elif not self._active:
            return
        elif piece.kind is Kind.END:
            self._send()
        elif piece.kind is Kind.BLANK:
            if self._begins:
                self._statement.append(piece.text)
        else:
            self._begins = self._begins or piece.line
            is_variable = piece.kind is Kind.VARIABLE
            text = piece.text
            if is_variable:
                text = self._script.value(piece.style, piece.name, piece.text)
            self._statement.append(text)

    def _command(self, piece: Piece) -> None:
        if piece.name in ("if", "elif", "else", "endif"):
            self._branch(piece)
            return
        if not self._active:
            return
        arguments = self._script.arguments(piece.arguments)
        variables = self._script.variables
        match piece.name, arguments:
            case "ir", [name]:
                self._script.run(self._path.parent / name)
            case "set", [name, *values]:
                variables[name] = "".join(values)
            case "unset", [name]:
                variables.pop(name, None)
            case "gset", []:
                self._gset(piece.line, "")
            case "gset", [prefix]:
                self._gset(piece.line, prefix)
            case "echo", _:
                pass
            case _:
                known = r"\ir, \if, \elif, \else, \endif, \set, \unset, \gset, \echo"
                raise self._fault(
                    piece.line,
                    f"{piece.text.strip()} is not understood here; there are {known}",
                )

    def _branch(self, piece: Piece) -> None:
        if piece.name == "if":
            active = self._active and self._condition(piece)
            self._branches.append(_Branch(piece.line, active, self._active))
            return
        if not self._branches or (piece.name != "endif" and self._branches[-1].last):
            raise self._fault(piece.line, rf"\{piece.name} without its \if")
        if piece.name == "endif":
            self._branches.pop()
        elif piece.name == "else":
            self._branches[-1].turn(lambda: True, last=True)
        else:
            self._branches[-1].turn(lambda: self._condition(piece), last=False)

    def _condition(self, piece: Piece) -> bool:
        value = " ".join(self._script.arguments(piece.arguments))
        if value.lower() in _TRUE:
            return True
        if value.lower() in _FALSE:
            return False
        raise self._fault(piece.line, rf"\{piece.name} expects true or false, got {value!r}")

    def _gset(self, line: int, prefix: str) -> None:
        cursor = self._send()
        result = cursor.pgresult if cursor else None
        if result is None or result.ntuples != 1:
            raise self._fault(line, r"\gset expects a query that returns one row")
        for column in range(result.nfields):
            name = prefix + (result.fname(column) or b"").decode()
            value = result.get_value(0, column)
            if value is None:
                self._script.variables.pop(name, None)
            else:
                self._script.variables[name] = value.decode()

    def _send(self) -> psycopg.Cursor | None:
        """Run the open statement, if there is one."""
        statement, begins = "".join(self._statement), self._begins
        self._statement, self._begins = [], 0
        if not begins:
            return None
        try:
            return self._script.execute(statement)
        except psycopg.Error as error:
            ours = translate(error)
            if ours is not None:
                raise ours from error
            at = error.diag.statement_position
            within = statement[: int(at) - 1].count("\n") if at else 0
            raise self._fault(begins + within, describe(error)) from error

    def _fault(self, line: int, message: str) -> ScriptError:
        return ScriptError(f"{self._path}:{line}: {message}")
