"""What the scanner takes for SQL, variables, commands and ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.db.scanner import Kind, Unterminated, scan


def kinds(text: str) -> list[tuple[Kind, str]]:
    return [(piece.kind, piece.text) for piece in scan(text) if piece.kind is not Kind.BLANK]


@pytest.mark.parametrize(
    "text",
    [
        "':a;\\x'",
        "'it''s :a'",
        "E'a\\':a;'",
        "e'\\\\'",
        '":a;"',
        '"a"":b"',
        "$$:a; \\if $1$$",
        "$body$ $$ :a; $body$",
        "$ä$;$ä$",
    ],
)
def test_quotes_are_one_piece(text: str) -> None:
    assert kinds(text) == [(Kind.SQL, text)]


@pytest.mark.parametrize("text", ["-- :a; \\x '", "/* :a; ' \\x */", "/* a /* b */ ; */", "  \n\t"])
def test_comments_are_blank(text: str) -> None:
    assert [piece.kind for piece in scan(text)] == [Kind.BLANK]


@pytest.mark.parametrize("text", ["a::text", "a := b", "$1", "foo$$", "x$a$y", ": a", "[1:2]"])
def test_no_variables_and_no_quotes(text: str) -> None:
    expected = {Kind.SQL} if ":2" not in text else {Kind.SQL, Kind.VARIABLE}
    assert {kind for kind, _ in kinds(text)} == expected


def test_styles_of_variables() -> None:
    found = [(p.style, p.name) for p in scan(":a:\"b\":'c':{?d}") if p.kind is Kind.VARIABLE]
    assert found == [("raw", "a"), ("ident", "b"), ("literal", "c"), ("defined", "d")]


def test_commands_take_the_rest_of_their_line() -> None:
    found = [
        (p.name, p.arguments, p.line)
        for p in scan("SELECT 1 \\gset a_\n\n\\ir x.sql\n")
        if p.kind is Kind.COMMAND
    ]
    assert found == [("gset", " a_", 1), ("ir", " x.sql", 3)]


def test_a_semicolon_ends_outside_of_parentheses_only() -> None:
    text = "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2); SELECT 3;"
    assert sum(kind is Kind.END for kind, _ in kinds(text)) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\n'b", 2), ('"b', 1), ("\n\n$x$ $y$", 3), ("/* /* */", 1), ("E'\\'", 1)],
)
def test_quotes_without_an_end(text: str, line: int) -> None:
    with pytest.raises(Unterminated) as caught:
        list(scan(text))
    assert caught.value.line == line


@given(st.text(alphabet="ab1 \n;:'\"$/*-\\(){}?E"))
def test_the_pieces_are_the_text(text: str) -> None:
    pieces: list[str] = []
    try:
        for piece in scan(text):
            assert piece.line == text.count("\n", 0, sum(map(len, pieces))) + 1
            pieces.append(piece.text)
    except Unterminated:
        assert text.startswith("".join(pieces))
    else:
        assert "".join(pieces) == text
