"""Hints of our SQL in the words of the command line.

Our SQL speaks to psql: it names variables (`psql -v force=1`), arguments (`id_col => COLUMN`) and functions.
The command line has an option by the same name for each of these variables and arguments, and a command for
some functions.
"""

from __future__ import annotations

import re

_COMMANDS = {
    "outbox_ensure_exists": "pytube outbox create",
    "outbox_adopt": "pytube outbox adopt",
    "outbox_drop": "pytube outbox drop",
    "tube_ensure_exists": "pytube tube create",
    "tube_table_ensure_attached": "pytube tube attach",
    "tube_table_ensure_detached": "pytube tube detach",
    "tube_backfill_list()": "pytube backfill status",
    "tube_job_list()": "pytube spark jobs",
    "tube_pause": "pytube pause",
    "tube_resume": "pytube resume",
}
_SENTENCES = {
    "Functions whose names begin with tube_ are for tubes.": "`pytube tube list` lists the tubes, and "
    "`pytube status` what waits in them; commands of `pytube outbox` are for outboxes.",
    "Functions whose names begin with outbox_ are for outboxes.": "`pytube outbox list` lists the outboxes; "
    "other commands of `pytube outbox` are for them, too.",
}
"""Hints that tell of a kind of functions, where the command line has a group of commands."""
_OPTIONS = {"key_type": "keys"}
"""Options that have another name than the argument."""

_FUNCTION = re.compile(r"\b(?:" + "|".join(map(re.escape, _COMMANDS)) + r")(?!\w)")
_SETTING = re.compile(r"\b(?:psql -v (?P<variable>\w+)=|(?P<argument>\w+) => )(?P<value>\w+)")


def for_command_line(hint: str) -> str:
    """The hint, naming options and commands in place of variables, arguments and functions."""
    for sentence, ours in _SENTENCES.items():
        hint = hint.replace(sentence, ours)
    return _SETTING.sub(_option, _FUNCTION.sub(lambda match: f"`{_COMMANDS[match[0]]}`", hint))


def _option(match: re.Match[str]) -> str:
    name = match["variable"] or match["argument"]
    option = f"--{_OPTIONS.get(name, name).replace('_', '-')}"
    return option if match["value"] in ("1", "true") else f"{option} {match['value']}"
