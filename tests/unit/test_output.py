"""What tables show of values that are not plain."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from io import StringIO

import click
import pytest

from pytube.cli import output
from pytube.cli.output import bar, key_shown, print_table, print_text, progress_meter, say, tell
from pytube.health.fleet import Count


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        *(("7", "7"), ('say "x"', 'say "x"'), ("Straße", "Straße"), (None, None)),
        *(
            ("", '""'),
            (" a", '" a"'),
            ("a\nb", '"a\\nb"'),
            ("\x1b[2J", '"\\u001b[2J"'),
            ("a\u202eb", '"a\\u202eb"'),
        ),
    ],
)
def test_ids_that_could_be_misread_are_quoted(key: str | None, shown: str | None) -> None:
    assert key_shown(key) == shown


COLUMNS = {"tube": "tube", "id": "id", "since": "since", "error": "error"}
ROW = {
    "tube": "es-live",
    "id": "7",
    "since": datetime(2026, 1, 2, 3, 4, 5, 678, UTC),
    "error": "the sink said no, because its mapping wants a number where the document has a text",
}
WIDE = ROW | {"tube": "t" * 40}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def be_wide(width: int) -> None:
        monkeypatch.setattr(output, "is_terminal", lambda: True)
        monkeypatch.setenv("COLUMNS", str(width))

    return be_wide


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return click.unstyle(capsys.readouterr().out).splitlines()


def test_a_table_folds_its_last_column(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    terminal(80)
    print_table(COLUMNS, [ROW, ROW | {"error": "no"}], "none")
    assert printed(capsys) == [
        "tube     id  since                      error",
        "es-live  7   2026-01-02 03:04:05+00:00  the sink said no, because its mapping",
        "                                        wants a number where the document has a",
        "                                        text",
        "es-live  7   2026-01-02 03:04:05+00:00  no",
    ]


@pytest.mark.parametrize("width", [80, 60])
def test_rows_that_do_not_fit_are_stacked_and_nothing_is_left_out(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None], width: int
) -> None:
    terminal(width)
    print_table(COLUMNS, [WIDE, ROW], "none")
    lines = printed(capsys)
    assert [line.split()[0] for line in lines if line and line[0] != " "] == list(COLUMNS) * 2
    assert lines[:4] == [
        f"tube   {'t' * 40}",
        "id     7",
        "since  2026-01-02 03:04:05+00:00",
        lines[3],
    ]
    assert "" in lines, "between two rows"
    assert max(map(len, lines)) <= width
    said = " ".join(line.strip() for line in lines[3:])
    assert said.startswith(f"error  {ROW['error']}")


def test_wide_characters_are_counted(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    terminal(40)
    print_table({"id": "id", "error": "error"}, [{"id": "港", "error": "港" * 30}], "none")
    assert printed(capsys) == ["id  error", f"港  {'港' * 18}", f"    {'港' * 12}"]


def test_a_pipe_gets_fields_that_cut_and_awk_read(capsys: pytest.CaptureFixture[str]) -> None:
    row = ROW | {"error": "two\nlines, and\ta tab"}
    print_table(COLUMNS, [row, WIDE], "none")
    said = capsys.readouterr().out
    assert said == (
        "tube\tid\tsince\terror\n"
        "es-live\t7\t2026-01-02 03:04:05+00:00\ttwo\\nlines, and\\ta tab\n"
        f"{'t' * 40}\t7\t2026-01-02 03:04:05+00:00\t{ROW['error']}\n"
    )


def test_without_rows_a_pipe_gets_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, [], "nothing is parked")
    assert capsys.readouterr() == ("tube\tid\tsince\terror\n", "nothing is parked\n")


def test_nothing_that_is_shown_commands_the_terminal(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    terminal(80)
    print_table({"error": "error"}, [{"error": "no \x1b[2J, \x07 nor \u202e; but [b]lines\nare"}], "none")
    assert printed(capsys)[1:] == ["no \\x1b[2J, \\x07 nor \\u202e; but [b]lines", "are"]
    for show in (lambda text: tell(text, None), say, lambda text: print_text("", text)):
        show("no \x1b[2J, but lines\nare")
        assert [line.strip() for line in printed(capsys)] == ["no \\x1b[2J, but lines", "are"]


def test_a_paragraph_is_folded_below_its_text(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    print_text("     ", "a finding of some words", click.style("warn", fg="yellow"))
    assert printed(capsys) == ["warn a finding of some words"]
    terminal(20)
    print_text("     ", "a finding of some words", click.style("warn", fg="yellow"))
    assert printed(capsys) == ["warn a finding of", "     some words"]


@pytest.mark.parametrize(
    ("text", "number", "is_exact"),
    [
        ("0", 0, True),
        ("999", 999, True),
        ("1000+", 1000, False),
        ("~12345", 12345, False),
        ("backfill_end:2 other:10", 12, True),
        ("sweep:10000", 10000, False),
    ],
)
def test_counts_are_numbers_for_programs(text: str, number: int, is_exact: bool) -> None:
    count = Count.of(text)
    assert (count.number, count.is_exact) == (number, is_exact)


# --- how far long work is -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [
        (0, 10, "[--------------------]   0%  "),
        (5, 10, "[##########----------]  50%  "),
        (999, 1000, "[###################-]  99%  "),
        (10, 10, "[####################] 100%  "),
        (11, 10, "[####################] 100%  "),
        (3, None, ""),
        (0, 0, ""),
    ],
)
def test_a_bar(done: int, total: int | None, shown: str) -> None:
    assert bar(done, total) == shown


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("err", [False, True])
def test_a_terminal_has_a_bar_for_each_name(err: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr" if err else "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_meter(err=err) as meter:
        meter("verify a", 1, 2, "1 of 2 keys")
        meter("verify b", 3, None, "3 keys")
    said = click.unstyle(terminal.getvalue())
    assert "verify a: [##########----------]  50%  1 of 2 keys" in said
    assert "verify b: 3 keys" in said


@pytest.mark.parametrize("terminal", [StringIO, Terminal], ids=["a file", "a dumb terminal"])
def test_elsewhere_a_line_is_due_every_few_seconds(
    terminal: type[StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    stream = terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress_meter() as meter:
        for second in range(12):
            now = 100.0 + second
            meter("verify a", second, 20, f"{second} keys")
    assert stream.getvalue().splitlines() == ["verify a: 5 keys (25%)", "verify a: 10 keys (50%)"]
