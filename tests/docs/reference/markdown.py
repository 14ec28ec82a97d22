"""Pieces of Markdown, and of the code that they are made from."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing if it has no rows."""
    lines = [_row(row) for row in rows]
    return "\n".join([_row(headings), "|" + "---|" * len(headings), *lines]) if lines else ""


def _row(cells: Sequence[str]) -> str:
    return "".join(f"| {cell}".rstrip() + " " for cell in map(_cell, cells)) + "|"


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def code(text: object) -> str:
    """As code."""
    return f"`{text}`"


def codes(texts: Iterable[object]) -> str:
    """Several, separated by commas."""
    return ", ".join(map(code, texts))


def sentence(text: str) -> str:
    """With a full stop, in one line."""
    text = " ".join(text.split())
    return text if text.endswith((".", ":", "?")) else f"{text}."


def docstrings(kind: type) -> dict[str, str]:
    """The docstrings of the attributes of a class, by name; those that it inherits, too."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("pytube"):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for node, after in zip(tree.body, tree.body[1:], strict=False):
            match node, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = " ".join(text.split())
    return found
