"""Hints of our SQL, in the words of the command line."""

from __future__ import annotations

import re

import pytest

from pytube.cli.program import cli
from pytube.db.errors import for_command_line
from pytube.db.version import sql_dir
from tests.helpers.cli import commands

HINTS = {
    "Give the schema: psql -v schema=NAME.": "Give the schema: --schema NAME.",
    "Let them, or throw them away with psql -v force=1.": "Let them, or throw them away with --force.",
    "Name it: id_col => COLUMN.": "Name it: --id-col COLUMN.",
    "Have the new one end it: supersede => true.": "Have the new one end it: --supersede.",
    "To make it: tube_ensure_exists, key_type => TYPE.": "To make it: `pytube tube create`, --keys TYPE.",
    "tube_backfill_list() shows all of them.": "`pytube backfill status` shows all of them.",
    "Detach it: tube_table_ensure_detached.": "Detach it: `pytube tube detach`.",
    "Run: SELECT tube.tube_sync();": "Run: SELECT tube.tube_sync();",
    "There are: 'a', 'my_tube_ensure_exists_2'.": "There are: 'a', 'my_tube_ensure_exists_2'.",
}


@pytest.mark.parametrize("hint", HINTS)
def test_in_words_of_the_command_line(hint: str) -> None:
    assert for_command_line(hint) == HINTS[hint]


def test_what_hints_name_is_there() -> None:
    """Each option and command that a hint of our SQL becomes is one of the program's."""
    each = [cli, *commands().values()]
    options = {"--help", *(name for one in each for parameter in one.params for name in parameter.opts)}
    texts = [path.read_text() for path in sql_dir().rglob("*.sql") if path.name != "snapshot.sql"]
    literals = r"(?:HINT =|remedy :=|THEN|SELECT) (?:format\()?((?:'(?:[^']|'')*'\s*)+)"
    hints = [hint for text in texts for hint in re.findall(literals, text)]
    assert len(hints) > 80
    shown = [for_command_line(hint) for hint in hints]
    assert not [hint for hint in shown if "psql" in hint or "Functions whose names" in hint]
    named = {word for hint in shown for word in re.findall(r"--[a-z-]+", hint)}
    assert {"--force", "--schema", "--roles", "--id-col", "--keys"} <= named
    assert named <= options
    assert {word for hint in shown for word in re.findall(r"`pytube ([a-z ]+)`", hint)} <= commands().keys()
