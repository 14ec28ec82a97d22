"""The command line where it needs no server: help, usage, the configuration, errors."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import pytube
from pytube import logs
from pytube.cli.context import key_argument, tube_argument
from pytube.cli.output import seconds
from pytube.cli.program import COMMANDS, EXAMPLES, cli, in_their_place
from tests.docs.pages import BY_NAME
from tests.helpers.cli import commands, leaves, run, run_json
from tests.helpers.database import ROOT

DOWN = "postgresql://app:hunter2@127.0.0.1:1/app"
CONFIG = f"""
[postgres]
dsn = "{DOWN}"
[tube."es-live".sink]
type = "jsonl"
path = "/tmp/out"
password = "hunter2"
"""
SERVED = CONFIG.replace(DOWN, "dbname=shop host=db.example").replace('password = "hunter2"', "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytube.toml").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize("words", commands())
def test_every_command_has_help(words: str) -> None:
    out = run(*words.split(), "--help", dsn=DOWN).stdout
    assert "Usage: cli" in out
    assert "hunter2" not in out
    assert not re.search(r"\b(INTEGER|FLOAT)\b|…\s*\n", out), "no types of click, and nothing cut"
    assert not re.search(r"\[default[^]]*\]\s*\[default", out), "one default each"
    _, calls = EXAMPLES.get(words, ("", ()))
    assert all(f"pytube {words} {call}".rstrip() in " ".join(out.split()) for call in calls)


def test_version() -> None:
    assert run("--version").stdout == f"pytube, version {pytube.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summaries(name: str) -> None:
    """Those that `--help` shows without loading a command are the commands' own."""
    assert commands()[name].get_short_help_str(limit=200) == COMMANDS[name][1]


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_what_a_quick_answer_does_not_load(option: str) -> None:
    """Each of these takes longer to import than the answer may take."""
    slow = {"psycopg", "pydantic", "rich", "confluent_kafka", "orjson", "alembic", "asyncio"}
    program = (
        "import sys, pytube.cli as c; sys.argv[1:] = [{!r}]\ntry: c.main()\nfinally: print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program.format(option)], check=True, capture_output=True, text=True, cwd=ROOT
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "click" in loaded
    assert loaded & slow == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["tube", "create"],
        ["tube", "attach", "x"],
        ["tube", "create", "x", "--partitions", "many"],
        ["status", "--interval", "0"],
        ["park", "list", "--limit", "0"],
        ["--log-level", "loud", "status"],
    ],
    ids=" ".join,
)
def test_bad_usage(arguments: list[str]) -> None:
    assert "Error: " in run(*arguments, dsn=DOWN, code=2).stderr


class TestConfigShow:
    def test_is_toml_with_secrets_masked(self, folder: Path) -> None:
        out = run("config", "show", folder=folder).stdout
        assert "hunter2" not in out
        shown = tomllib.loads(out)
        assert shown["tube"]["es-live"]["sink"]["options"] == {"path": "/tmp/out", "password": "********"}
        assert shown["worker"]["receive_deadline"] == 5.0
        assert run_json("config", "show", folder=folder) == shown | {
            "worker": shown["worker"] | run_json("config", "show", folder=folder)["worker"]
        }

    def test_bad_file(self, folder: Path) -> None:
        (folder / "pytube.toml").write_text(CONFIG + "\n[worker]\nspeed = 9\n")
        err = run("config", "show", folder=folder, code=2).stderr
        assert err.startswith(f"pytube: {folder}/pytube.toml: key worker.speed: is unknown; expected one of")
        assert err.count("\n") == 1


class TestWorker:
    def test_without_a_file(self) -> None:
        assert "there is no such file" in run("worker", code=2).stderr

    def test_a_tube_that_is_not_configured(self, folder: Path) -> None:
        err = run("worker", "--tube", "other", folder=folder, code=2).stderr
        assert "'other' is not configured (configured: es-live)" in err

    def test_an_outbox_that_is_not_configured(self, folder: Path) -> None:
        err = run("worker", "--outbox", "other", folder=folder, code=2).stderr
        assert "the outbox 'other' is not configured (configured: none)" in err

    def test_no_tube_at_all(self, folder: Path) -> None:
        (folder / "pytube.toml").write_text('[postgres]\ndsn = "host=/nowhere"\n')
        assert "nothing is configured to be served" in run("worker", folder=folder, code=2).stderr


class TestDatabase:
    @pytest.mark.parametrize(
        "words",
        [
            ["install"],
            ["upgrade"],
            ["uninstall"],
            ["status"],
            ["tube", "list"],
            ["tube", "create", "t"],
            ["tube", "attach", "t", "public.t"],
            ["park", "list"],
        ],
        ids=" ".join,
    )
    def test_down(self, words: list[str], folder: Path) -> None:
        for result in (run(*words, dsn=DOWN, code=3), run(*words, folder=folder, code=3)):
            assert result.stderr.startswith("pytube: Postgres is not available: ")
            assert result.stderr.count("\n") == 1
            assert "hunter2" not in result.output

    def test_which(self) -> None:
        assert "which database?" in run("tube", "list", code=2).stderr

    @pytest.mark.parametrize(
        "words",
        [
            "--config {file} status",
            "--config {file} pause --tube es-live",
            "verify --tube es-live",
            "explain --tube es-live --key 1",
            "pods show --tube es-live --key 1",
            "pods step --tube es-live",
            "reindex status --tube es-live",
            "web",
        ],
    )
    def test_the_variable_and_the_file_name_one_database(self, words: str, folder: Path) -> None:
        """Otherwise the copy of the one would be compared with the other, say."""
        (folder / "pytube.toml").write_text(SERVED)
        arguments = words.format(file=folder / "pytube.toml").split()
        named = r"PYTUBE_DSN names the database {} at {}, but \S+pytube.toml names shop at db.example:5432; "
        for dsn, name, server in (
            ("dbname=other host=db.example", "other", "db.example:5432"),
            ("postgresql://me:hunter2@/shop?port=6432", "shop", "localhost:6432"),
        ):
            refused = run(*arguments, dsn=dsn, folder=folder, code=2).stderr
            assert re.match("pytube: " + named.format(name, server), refused)
            assert "hunter2" not in refused

    def test_the_variable_may_have_another_role(self, folder: Path) -> None:
        (folder / "pytube.toml").write_text(SERVED.replace("host=db.example", "host=127.0.0.1 port=1"))
        dsn = "postgresql://admin@localhost:1/shop"
        assert "is not available" in run("verify", "--tube", "es-live", dsn=dsn, folder=folder, code=3).stderr

    def test_the_variable_counts_where_the_file_is_not_named(self, folder: Path) -> None:
        (folder / "pytube.toml").write_text(SERVED)
        assert "is not available" in run("status", dsn=DOWN, folder=folder, code=3).stderr

    @pytest.mark.parametrize("words", ["status", "tube list", "doctor", "backfill status", "worker"])
    def test_a_file_that_is_named_has_to_be_there(self, words: str, tmp_path: Path) -> None:
        missing = tmp_path / "missing.toml"
        refused = run("--config", str(missing), *words.split(), dsn=DOWN, code=2)
        assert refused.stderr.startswith(f"pytube: {missing}: there is no such file; name the configuration")

    def test_a_connection_string_that_is_none(self) -> None:
        err = run("tube", "list", dsn="nonsense hunter2", code=2).stderr
        assert err.startswith("pytube: the connection string can't be understood")
        assert "hunter2" not in err


class TestFaults:
    """Errors that nobody foresaw."""

    def test_debug_shows_where(self) -> None:
        result = CliRunner().invoke(cli, ["--debug", "status", "--dsn", DOWN])
        assert result.exit_code == 3
        assert "Traceback" in result.stderr
        assert "hunter2" not in result.stderr


def test_logs_are_json_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        logs.configure("info")
        logs.Logger("pytube.x").info("it_happened", speed=7, partition=3, tube="es-live")
        logs.Logger("pytube.x").debug("not_told")
        logging.getLogger("other").warning("from %s", "elsewhere")
        logging.getLogger("psycopg.pool").warning("one more try to connect has failed")
    finally:
        root.handlers[:], root.level = before
        logging.getLogger("psycopg").setLevel(logging.NOTSET)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(x["event"], x["level"], x["logger"]) for x in lines] == [
        ("it_happened", "info", "pytube.x"),
        ("from elsewhere", "warning", "other"),
    ]
    assert list(lines[0].items())[3:-1] == [("tube", "es-live"), ("partition", 3), ("speed", 7)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0123, "12 ms"),
        (-1.0, "0 ms"),
        (3.21, "3.2 s"),
        (600.0, "10 min"),
        (86400.0, "24 h"),
        (864000.0, "10 d"),
    ],
)
def test_lengths_of_time(value: float | None, text: str) -> None:
    assert seconds(value) == text


class TestExamples:
    """The end of each command's help."""

    @pytest.mark.parametrize("words", EXAMPLES)
    def test_they_parse_and_their_page_is_there(
        self, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("schema.json", "ids.parquet", "es-live.jsonl", "token"):
            (tmp_path / name).touch()
        page, calls = EXAMPLES[words]
        for call in calls:
            commands()[words].make_context(words, in_their_place(shlex.split(call)))
        name, _, anchor = page.partition("#")
        assert not anchor or anchor in BY_NAME[f"docs/{name}"].anchors()

    def test_each_command_has_some(self) -> None:
        assert set(EXAMPLES) == leaves()


class TestWhereOptionsStand:
    """Shared options stand before or after the command, and the tube is an argument or an option."""

    @pytest.mark.parametrize(
        ("given", "parsed"),
        [
            ("--config a.toml status", "--config a.toml status"),
            ("status --config a.toml --debug", "--config a.toml --debug status"),
            ("worker --config=a.toml --tube t", "--config=a.toml worker --tube t"),
            ("--dsn d --host=h tube list", "tube list --dsn d --host=h"),
            ("--dsn d touch t public.x -- -1", "touch t public.x --dsn d -- -1"),
            ("touch t public.x -- --debug", "touch t public.x -- --debug"),
            ("status --config", "--config status"),
        ],
    )
    def test_they_are_put_where_they_are_parsed(self, given: str, parsed: str) -> None:
        assert in_their_place(given.split()) == parsed.split()

    def test_a_file_that_is_named_after_the_command(self, folder: Path) -> None:
        shown = run("config", "show", "--config", str(folder / "pytube.toml")).stdout
        assert "es-live" in shown

    def test_a_command_that_has_no_database(self) -> None:
        assert "No such option '--dsn'" in run("--dsn", DOWN, "config", "show", code=2).stderr

    @pytest.mark.parametrize("arguments", [["es-live"], ["--tube", "es-live"]], ids=" ".join)
    def test_the_tube(self, arguments: list[str]) -> None:
        assert "Postgres is not available" in run("resume", *arguments, dsn=DOWN, code=3).stderr

    def test_no_tube_and_two(self) -> None:
        assert "Missing argument 'TUBE'" in run("resume", dsn=DOWN, code=2).stderr
        assert "named twice" in run("resume", "a", "--tube", "b", dsn=DOWN, code=2).stderr

    def test_names_of_tubes_complete(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        completed = ShellComplete(cli, {}, "pytube", "_PYTUBE_COMPLETE").get_completions(["resume"], "es")
        assert [item.value for item in completed] == ["es-live"]


VERBS = {"list", "show", "retry", "discard"}


@pytest.mark.parametrize("words", ["park", "pods", "outbox parked"])
def test_one_verb_for_one_act(words: str) -> None:
    group = commands()[words]
    assert isinstance(group, click.Group)
    assert group.commands.keys() >= VERBS


WITHOUT_JSON = {
    "demo": "prints a story; its exit code is the result",
    "document from-pgsync": "prints TOML, which is the data",
    "pods step": "asks before each document",
    "top": "draws on a terminal",
    "web": "serves pages until it is ended",
    "worker": "prints logs only, which --log-format makes JSON",
}


def test_each_command_prints_json() -> None:
    without = {
        words
        for words, command in commands().items()
        if not isinstance(command, click.Group)
        and not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == set(WITHOUT_JSON)


class TestKeys:
    """KEY is an argument behind the tube; `--key` works, too."""

    @pytest.mark.parametrize(
        "arguments",
        [
            ["t", "7"],
            ["t", "--key", "7"],
            ["--tube", "t", "--key", "7"],
            ["--tube", "t", "7"],
            ["t", "7", "x"],
        ],
        ids=" ".join,
    )
    def test_they_are_taken(self, arguments: list[str]) -> None:
        found: list[object] = []

        @click.command()
        @tube_argument()
        @key_argument(several=True)
        def act(name: str, key: tuple[str, ...]) -> None:
            found.extend([name, *key])

        result = CliRunner().invoke(act, arguments)
        assert (result.exit_code, found) == (0, [word for word in arguments if word[0] != "-"])

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ("park show t", "Missing argument 'KEY'"),
            ("park show t 7 8", "one key, please, not 2"),
            ("park show t 7 --key 8", "the key is given twice"),
            ("pods show t", "which pods? Give KEY or --seq"),
            ("explain t", "Missing argument 'KEY'"),
        ],
    )
    def test_they_are_refused(self, arguments: str, said: str) -> None:
        assert said in run(*arguments.split(), dsn=DOWN, code=2).stderr
