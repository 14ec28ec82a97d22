"""How our SQL files are read without psql: the pages, the variables, and what the files keep to."""

from __future__ import annotations

import re
import sys

import pytest

from pytube.config.names import TableName
from pytube.db import install
from pytube.db.install import ROLES, ScriptError, contents, substituted
from pytube.db.version import sql_dir
from pytube.errors import UsageError
from pytube.tubes import queries

PAGES = ("install.sql", "uninstall.sql")
FILES = sorted({file for page in PAGES for file in contents(page) if not file.startswith("psql/")})


def bare(text: str) -> str:
    """`text` without variables, and without the quotes, bodies and comments in which psql looks for none."""
    return install._VARIABLE.sub("''", text)


@pytest.mark.parametrize(
    "text",
    [
        "':\"s\"'",
        "'it''s :''s'''",
        '"a"":\'s\'"',
        '$$:"s" \' $1$$',
        "$body$ $$ :'s'; $body$",
        "-- don't :'s'",
        "a::text, b := c, d[1:2]",
    ],
)
def test_what_is_left_as_it_is(text: str) -> None:
    assert substituted(text, {"s": "value"}) == text


def test_variables() -> None:
    text = "CREATE TABLE :\"s\".t AS SELECT :'s', ':s' -- don't :'s'\n, :'n'::int, $$:'n'$$ || :'n'"
    assert (
        substituted(text, {"s": "o\"d'd", "n": "5"})
        == "CREATE TABLE \"o\"\"d'd\".t AS SELECT 'o\"d''d', ':s' -- don't :'s'\n, '5'::int, $$:'n'$$ || '5'"
    )


def test_a_variable_that_is_not_set() -> None:
    with pytest.raises(ScriptError, match="a.sql: there is no variable :'x'"):
        substituted("SELECT :'x'", {}, "a.sql")


def test_a_page_is_its_includes() -> None:
    files = contents("install.sql")
    assert files[0] == "psql/start.sql"
    assert files[-1] == "psql/end.sql"
    assert files.count("psql/begin.sql") == 1
    assert contents("uninstall.sql") == [
        "psql/start.sql",
        "whose.sql",
        "psql/begin.sql",
        "whose.sql",
        "remove.sql",
        "psql/end.sql",
    ]


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ScriptError, match=r"none\.sql: can't be read: No such file"):
        contents("none.sql")


def test_every_file_is_named_by_a_page() -> None:
    there = {path.relative_to(sql_dir()).as_posix() for path in sql_dir().rglob("*.sql")}
    there -= {path.relative_to(sql_dir()).as_posix() for path in (sql_dir() / "extension").iterdir()}
    assert there - {*PAGES, "snapshot.sql"} == {*FILES, "psql/start.sql", "psql/begin.sql", "psql/end.sql"}


def test_psql_knows_the_same_roles() -> None:
    text = (sql_dir() / "psql/begin.sql").read_text()
    assert tuple(re.findall(r"'_(\w+)' AS role_\1\b", text)) == ROLES


@pytest.mark.parametrize("file", FILES)
def test_files_are_plain_sql(file: str) -> None:
    """What would mean something else to psql, or to us, is not in them; nor what psql would print."""
    text = (sql_dir() / file).read_text()
    assert text.isascii(), "what a database with another encoding may not have"
    rest = bare(text)
    assert "\\" not in rest, "a command of psql, or a backslash"
    assert "/*" not in rest, "a block comment"
    assert not re.search(r"\bE''", rest, re.IGNORECASE), "a string with escapes"
    assert not re.search(r"""(?<!:):[\w'"{]""", rest), "another kind of variable"
    assert not re.search(r"""["'$]""", rest.replace("''", "")), "a quote without an end"
    assert not re.search(r"^\s*SELECT\b", re.sub(r"\([^()]*\)", "", rest.partition("CREATE")[0])), "an answer"
    assert not re.search(r"\b(BEGIN|COMMIT|ROLLBACK)\s*;", rest), "the end of a transaction"


def test_what_is_outside_of_the_transaction_is_one_statement() -> None:
    assert bare((sql_dir() / "whose.sql").read_text()).count(";") == 1


@pytest.mark.parametrize("package", ["alembic", "sqlalchemy"])
def test_upgrade_says_which_package_it_needs(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pytube.db.migrate", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        UsageError, match=rf"needs the package {package}: .*\[alembic\].* run `pytube install`"
    ):
        install.upgrade("host=127.0.0.1 port=1")


def test_a_statement_with_its_arguments_in_place() -> None:
    arguments = {"tube": "it's", "partitions": 2, "predicate": "a  <> '%(tube)s {s}'\n%s", "key_type": None}
    assert queries.text(queries.ENSURE_EXISTS, 'my "%s"', arguments) == (
        'SELECT "my ""%s""".tube_ensure_exists(\'it\'\'s\', 2, '
        "'a  <> ''%(tube)s {s}''\n%s', NULL::pg_catalog.regtype)"
    )
    table = {"tube": "live", "table": TableName("My", "own.table")}
    assert queries.text(queries.DETACH, "tube", table) == (
        'SELECT "tube".tube_table_ensure_detached(\'live\', \'"My"."own.table"\'::pg_catalog.regclass)'
    )
