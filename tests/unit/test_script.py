"""The interpreter of our SQL files, over a connection that only writes down what it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytube.db.script import Script, ScriptError


class Result:
    """What a `SELECT` gives: one row by column name, or another number of empty rows."""

    def __init__(self, row: dict[str, str | None], ntuples: int = 1) -> None:
        self._row = list(row.items())
        self.ntuples = ntuples
        self.nfields = len(row)

    def fname(self, column: int) -> bytes:
        return self._row[column][0].encode()

    def get_value(self, _row: int, column: int) -> bytes | None:
        value = self._row[column][1]
        return None if value is None else value.encode()


class Recorder:
    """Stands for a connection."""

    def __init__(self, result: Result | None = None) -> None:
        self.sent: list[str] = []
        self.pgresult = result

    def execute(self, statement: bytes, prepare: bool) -> Recorder:
        assert not prepare
        self.sent.append(statement.decode())
        return self


class Runner:
    """Runs texts as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables: dict[str, str] = {}

    def __call__(self, text: str, result: Result | None = None, **variables: str) -> list[str]:
        (self.folder / "main.sql").write_text(text)
        recorder: Any = Recorder(result)
        script = Script(recorder, variables)
        script.run(self.folder / "main.sql")
        self.variables = script.variables
        sent: list[str] = recorder.sent
        return sent

    def fault(self, text: str, **variables: str) -> str:
        with pytest.raises(ScriptError) as caught:
            self(text, None, **variables)
        return str(caught.value).removeprefix(f"{self.folder}/")


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_statements(run: Runner) -> None:
    text = "-- a comment\nSELECT 1;\n\nSELECT\n 2 -- two\n;; SELECT 3"
    assert run(text) == [
        "SELECT 1",
        "SELECT\n 2 -- two\n",
        "SELECT 3",
    ]


def test_variables_outside_of_quotes(run: Runner) -> None:
    text = """CREATE TABLE :"s".t AS SELECT :'s', ':s', $$:"s"$$, :n, :none, a::int -- :s\n;"""
    assert run(text, s="o\"d'd", n="5") == [
        """CREATE TABLE "o""d'd".t AS SELECT 'o"d''d', ':s', $$:"s"$$, 5, :none, a::int -- :s\n"""
    ]


def test_if_else(run: Runner) -> None:
    text = "\\if :{?a}\nSELECT 1;\n\\elif :b\nSELECT 2;\n\\else\nSELECT 3;\n\\endif\nSELECT 4;"
    assert run(text, a="") == ["SELECT 1", "SELECT 4"]
    assert run(text, b="yes") == ["SELECT 2", "SELECT 4"]
    assert run(text, b="0") == ["SELECT 3", "SELECT 4"]


def test_what_is_not_run_is_not_read(run: Runner, tmp_path: Path) -> None:
    text = "\\if no\n\\ir none.sql\n"
    text += "\\if :nonsense\n\\elif what\n\\else\nSELECT 0;\n\\endif\n\\set a b\n\\endif\nSELECT :a;"
    assert run(text) == ["SELECT :a"]
    assert tmp_path.exists()


def test_branches_within_a_statement(run: Runner) -> None:
    assert run("SELECT 1\n\\if true\n, 2\n\\else\n, 3\n\\endif\n;") == ["SELECT 1\n\n, 2\n\n"]


def test_set_and_unset(run: Runner) -> None:
    run("\\set a 'it''s' b :\"c\"\n\\set e\n\\set f x\n\\unset f", c="C")
    assert run.variables == {"a": 'it\'sb"C"', "e": "", "c": "C"}


def test_gset(run: Runner) -> None:
    assert run("SELECT x AS a, y AS b \\gset p_\nSELECT :p_a;", Result({"a": "t", "b": None}), p_b="old") == [
        "SELECT x AS a, y AS b ",
        "SELECT t",
    ]
    assert run.variables == {"p_a": "t"}


def test_included_files_are_beside_the_file_that_names_them(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.sql").write_text("\\ir two.sql\n\\set seen yes\n")
    (tmp_path / "sub" / "two.sql").write_text("SELECT :'v'")
    assert run("\\ir sub/one.sql\nSELECT :'seen';", v="x") == ["SELECT 'x'", "SELECT 'yes'"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\\if maybe\n\\endif", "main.sql:2: \\if expects true or false, got 'maybe'"),
        ("\n\\if :v\n\\endif", "main.sql:2: \\if expects true or false, got ':v'"),
        ("\\if 1\nSELECT 1;", "main.sql:1: \\if without \\endif"),
        ("SELECT 1;\n\\endif", "main.sql:2: \\endif without its \\if"),
        ("\\if 1\n\\else\n\\else\n\\endif", "main.sql:3: \\else without its \\if"),
        ("\n\\copy t from x", "main.sql:2: \\copy t from x is not understood here; there are \\ir,"),
        ("SELECT 1;\nSELECT 'a", "main.sql:2: a quote without an end"),
        ("\n\\gset", "main.sql:2: \\gset expects a query that returns one row"),
        ("\\ir none.sql", "none.sql: can't be read: No such file or directory"),
    ],
)
def test_faults_name_file_and_line(run: Runner, text: str, message: str) -> None:
    assert run.fault(text).startswith(message)


def test_gset_wants_one_row(run: Runner) -> None:
    with pytest.raises(ScriptError, match="one row"):
        run("SELECT 1 WHERE false \\gset", Result({"a": "1"}, ntuples=0))
