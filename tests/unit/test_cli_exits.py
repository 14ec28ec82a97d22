"""One test for each way in which a command ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click
import psycopg
import pytest
from click.testing import CliRunner, Result

from pytube.cli import context
from pytube.cli.context import confirm
from pytube.cli.program import EXIT_CODES, Program
from pytube.errors import (
    BrokerUnavailable,
    ConfigError,
    DatabaseUnavailable,
    EnrichFailed,
    KeysParked,
    PytubeError,
    SchemaMismatch,
    SinkUnavailable,
    StatementFailed,
    UnknownTube,
    WaitTimeout,
)
from tests.docs.pages import BY_NAME
from tests.helpers.cli import commands, run
from tests.helpers.database import ROOT


def ended(does: Callable[[], object], answer: str = "") -> Result:
    """How a program ends whose only command does this."""

    @click.group(cls=Program)
    def program() -> None:
        pass

    @program.command()
    def act() -> None:
        does()

    return CliRunner().invoke(program, ["act"], input=answer)


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def does() -> NoReturn:
        raise error

    return does


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WaitTimeout("late"), 1),
        (KeysParked("parked"), 1),
        (ConfigError("wrong"), 2),
        (UnknownTube("none"), 2),
        (EnrichFailed("no grant"), 2),
        (psycopg.errors.SyntaxError("no"), 2),
        (DatabaseUnavailable("down"), 3),
        (BrokerUnavailable("down"), 3),
        (SinkUnavailable("down"), 3),
        (StatementFailed("locked"), 3),
        (psycopg.errors.DiskFull("full"), 3),
        (SchemaMismatch("old"), 4),
        (ZeroDivisionError("oh"), 70),
        (KeyboardInterrupt(), 130),
    ],
    ids=repr,
)
def test_an_error_ends_with_its_code(error: BaseException, code: int) -> None:
    result = ended(raising(error))
    assert result.exit_code == code
    assert result.stderr.startswith("pytube: ")
    assert result.stderr.count("\n") == 1
    assert any(str(code) in codes.split(", ") for codes in EXIT_CODES)


@pytest.mark.parametrize(
    ("error", "more"),
    [
        (UnknownTube("none"), "; more: docs/errors.md#unknowntube"),
        (WaitTimeout("late"), "; more: docs/errors.md#waittimeout"),
        (ConfigError("wrong"), "wrong"),
    ],
    ids=repr,
)
def test_an_error_names_its_section(error: PytubeError, more: str) -> None:
    said = ended(raising(error)).stderr
    assert said.endswith(f"{more}\n")
    assert "#" not in more or more.partition("#")[2] in BY_NAME["docs/errors.md"].anchors()


def test_an_internal_error_asks_for_a_report() -> None:
    said = ended(raising(ZeroDivisionError("oh"))).stderr
    assert said == "pytube: internal error (ZeroDivisionError: oh); rerun with --debug and report it\n"


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ("y\n", 0, ""),
        ("n\n", 130, "pytube: canceled; nothing was changed\n"),
        ("", 2, "a question needs an answer, and stdin has none; --yes answers it\n"),
    ],
)
def test_a_question(answer: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "has_people", lambda: True)
    result = ended(lambda: confirm("drop it?", yes=False), answer)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.endswith(said)


def test_without_a_terminal_a_question_is_refused_at_once() -> None:
    """It would wait for as long as the pipe is open, which a cron job's may be for ever."""
    program = "import tests.unit.test_cli_exits as t; t.asks()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()  # while stdin is open
        assert process.wait() == 2
    assert said == "pytube: drop it? This needs an answer, and there is no terminal; --yes answers it\n"


def asks() -> None:
    """The program of the test above."""

    @click.group(cls=Program)
    def program() -> None:
        pass

    @program.command()
    def act() -> None:
        confirm("drop it?", yes=False)

    program(["act"])


@pytest.mark.parametrize(
    ("yes", "has_people", "asks"),
    [(False, True, True), (False, False, False), (True, True, False), (True, False, False)],
)
def test_force_asks_people_and_no_script(
    yes: bool, has_people: bool, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "has_people", lambda: has_people)
    result = ended(lambda: confirm("drop it?", yes=yes, forced=True), "n\n")
    assert result.exit_code == (130 if asks else 0)
    assert ("drop it?" in result.stderr) == asks


@pytest.mark.parametrize("words", ["tube drop", "outbox drop", "uninstall", "reindex finish"])
def test_commands_that_delete_have_yes(words: str) -> None:
    assert {"--force", "--yes"} <= {name for one in commands()[words].params for name in one.opts}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_verify_and_explain(number: signal.Signals, code: int) -> None:
    program = f"""
import asyncio, os, click
from pytube.cli import verify
from pytube.cli.program import Program
async def work():
    os.kill(os.getpid(), {int(number)})
    await asyncio.Event().wait()
@click.group(cls=Program)
def program(): pass
@program.command()
def act(): verify._run(work())
program(["act"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (code, "pytube: interrupted\n")


def test_a_reader_that_is_gone(tmp_path: Path) -> None:
    program = """
import click
from pytube.cli.program import Program
@click.group(cls=Program)
def program(): pass
@program.command()
def act():
    while True: click.echo("a line")
program(["act"])
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    piped = f"{sys.executable} {path} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", piped], check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (141, "a line\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ("touch", "t", "public.x"),
        ("touch", "t", "public.x", "1", "--query", "SELECT 1"),
        ("park", "retry"),
        ("park", "discard", "--yes"),
        ("pods", "show", "t"),
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_refused_before_a_session_is_opened(words: tuple[str, ...]) -> None:
    """Else a server that is down, or another role, would be what is reported."""
    said = run(*words, dsn="postgresql://127.0.0.1:1/none", code=2).stderr
    assert "connect" not in said


def test_help_lists_each_code() -> None:
    out = run("--help").stdout
    for code, (line, _) in EXIT_CODES.items():
        assert f"  {code}  {line}\n" in out
