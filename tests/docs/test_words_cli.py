"""The command line is free of the habits of test_words.py: its messages, help, comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_words import found_in
from tests.helpers.database import ROOT


def texts(path: Path) -> Iterator[str]:
    """All strings and comments of a file."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@pytest.mark.parametrize("path", sorted((ROOT / "pytube/cli").glob("*.py")), ids=lambda path: path.name)
def test_no_habit_is_left(path: Path) -> None:
    _, lines = found_in(texts(path))
    assert lines == []
