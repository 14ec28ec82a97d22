"""What tables show of values that are not plain."""

from __future__ import annotations

import pytest

from pytube.cli.output import key_shown, print_rows


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


def test_nothing_that_is_shown_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows({"error": "error"}, [{"error": "no \x1b[2J, \x07 nor \u202e; but [b]lines\nare"}], "none")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == ["no \\x1b[2J, \\x07 nor \\u202e; but [b]lines", "are"]
