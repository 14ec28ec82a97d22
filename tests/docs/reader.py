"""Follows a tutorial as its reader would: runs its commands in one shell, and compares what they print."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.pages import Block, Page
from tests.docs.shell import commands_of
from tests.helpers.waiting import LIMIT, wait_until

OUTPUTS = ("text", "json")
LEFT_OUT = "…"
_READS = (
    *("curl -s ", "python read.py ", "python check.py"),
    *("pytube backfill status", "pytube status", "pytube outbox status", "pytube outbox parked"),
)
"""Commands that only look: a reader tries them again until the worker is as far as the page says."""
_VARIES = (
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min)\b"), "a while"),
    (re.compile(r"\b(about|at most) \d+(\.\d+)?\b"), r"\1 some"),
)
"""What differs from machine to machine, as the page says: times, and estimates."""
_PROGRESS = re.compile(
    r"pytube: (\d+ missing, .* keys compared|looking for keys that only the sink has)$"
    r"|verify \w+: .* \(\d+%\)$"
)
"""What a terminal shows for a moment only."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a reader pastes at once, and the output that the page shows for it."""

    block: Block
    shown: Block | None

    def fails(self) -> bool:
        """Whether the page shows that its last command is refused."""
        lines = self.shown.text.splitlines() if self.shown is not None else []
        return bool(lines) and lines[-1].startswith("pytube: ")


def steps(page: Page) -> Iterator[Step]:
    """The blocks of a page that are run, each with the output that follows it."""
    blocks = page.blocks()
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language not in OUTPUTS:
            shown = following if following is not None and following.language in OUTPUTS else None
            yield Step(block, shown)


class Reader:
    """One shell from the first command to the last; what runs in its background ends with it."""

    def __init__(self, folder: Path, replaced: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Args:
        folder: the working directory.
        replaced: what the page says, and what stands for it here, in commands and outputs.
        environment: variables, besides those of this process.
        """
        self._folder = folder
        self._replaced = replaced
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTUBE_", "PG"))}
        path = f"{Path(sys.executable).parent}:{environment.get('PATH', os.environ['PATH'])}"
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env={**kept, **environment, "PATH": path, "PSQLRC": "/dev/null"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()

    def follow(self, step: Step) -> None:
        """Run a block; an AssertionError says which command fails, or what was to be printed."""
        if step.block.language == "sql":
            commands = [f"psql -q -v ON_ERROR_STOP=1 \"$PYTUBE_DSN\" <<'SQL'\n{step.block.text}SQL"]
        else:
            commands = list(commands_of(step.block.text))
        *before, last = commands
        printed = "".join(self._succeed(command) for command in before)
        if step.shown is None:
            self._succeed(last)
            return
        shown = Block(step.shown.page, step.shown.line, step.shown.language, self._ours(step.shown.text))
        found = ""

        def is_as_shown() -> bool:
            nonlocal found
            code, output = self._run(last)
            assert (code != 0) == step.fails(), f"{step.block}: {last}: exit code {code}\n{output}"
            found = printed + output
            return matches(found, shown)

        limit = LIMIT if last.startswith(_READS) else 0
        wait_until(is_as_shown, limit, what=lambda: f"{shown}:\n{shown.text}\nbut:\n{found}")

    def _succeed(self, command: str) -> str:
        code, output = self._run(command)
        assert code == 0, f"{command}: exit code {code}\n{output}"
        return output

    def _run(self, command: str) -> tuple[int, str]:
        if command.startswith("pip "):
            assert re.fullmatch(r"pip install '\.\[(opensearch|kafka)\]'", command)  # it is installed
            return 0, ""
        output = self._folder / ".output"
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {self._ours(command)}\n}} >{output} 2>&1 </dev/null; echo $?\n")
        self._shell.stdin.flush()
        ready, _, _ = select.select([self._shell.stdout], [], [], 4 * LIMIT)
        assert ready, f"{command} does not end:\n{output.read_text()}"
        return int(self._shell.stdout.readline()), output.read_text()

    def _ours(self, text: str) -> str:
        for theirs, ours in self._replaced.items():
            text = re.sub(rf"(?<!\w){re.escape(theirs)}(?!\w)", ours, text)
        return text


def matches(output: str, shown: Block) -> bool:
    """Whether an output is what the page shows: blanks, times, estimates and `…` aside."""
    if shown.language == "json":
        try:
            return bool(json.loads(output) == json.loads(shown.text))
        except ValueError:
            return False
    pattern = "".join(_line(line) for line in shown.text.splitlines())
    lines = [line for line in output.splitlines() if not _PROGRESS.match(line)]
    return re.fullmatch(pattern, "".join(f"{_normal(line)}\n" for line in lines)) is not None


def _line(line: str) -> str:
    if line.strip() == LEFT_OUT:
        return r"(.*\n)*"
    return re.escape(_normal(line)).replace(LEFT_OUT, ".*") + r"\n"


def _normal(line: str) -> str:
    for varies, common in _VARIES:
        line = varies.sub(common, line)
    return " ".join(line.split())
