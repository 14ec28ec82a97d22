"""Every command, run as a login in exactly the role that docs/security.md names for it."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import SecretStr
from textual.widgets import DataTable

from pytube.cli import rights
from pytube.cli.program import cli
from pytube.cli.top import TopApp
from pytube.db.database import Database
from tests.docs.pages import BY_NAME
from tests.helpers import http
from tests.helpers.cli import leaves, run, start
from tests.helpers.database import ROOT
from tests.helpers.roles import Staff, staff
from tests.helpers.waiting import LIMIT, wait_until, wait_until_async

CONFIG = """
[postgres]
dsn = "${PYTUBE_DSN}"
[worker]
election = "lease"
[tube.t.sink]
type = "postgres"
dsn = "${COPY_DSN}"
table = "copies"
create = true
"""
DOCUMENT = """
[tube.d.sink]
type = "jsonl"
path = "d.jsonl"
[document.d]
table = "app.goods"
fields = ["value"]
"""
ELSEWHERE = {
    "demo": "tests/integration/test_demo.py::test_the_copy_is_equal_in_the_end",
    "dev": "tests/integration/test_dev.py::test_a_server_runs_until_it_is_interrupted",
    **{
        f"reindex {step}": "tests/integration/test_reindex.py::test_an_admin_reindexes"
        for step in ("start", "status", "compare", "switch", "finish", "abandon")
    },
    **{
        f"spark {name}": "tests/spark/test_cli.py::test_each_command_as_its_role"
        for name in ("touch", "fanout", "reconcile", "backfill")
    },
}
"""Commands that need servers of their own: the test that runs each as its role. Two bring their own."""


def documented() -> dict[str, str]:
    """The role of each command: the kind of one of ours, `installer` or `none`."""
    lines = BY_NAME["docs/security.md"].text.partition("### Which role runs which command")[2].splitlines()
    found: dict[str, str] = {}
    for line in lines:
        if (row := re.fullmatch(r"\| (.+?) \| (.+?) \| .*\|", line)) is None or row[1] in (
            "log in as",
            "---",
        ):
            continue
        kind = {"the role that installed": "installer", "any role": "none"}.get(row[1])
        for command in re.findall(r"`([a-z -]+)`", row[2]):
            assert command not in found, f"{command} stands there twice"
            found[command] = kind or row[1].removeprefix("`tube_").removesuffix("`")
    return found


def test_the_page_names_a_role_for_each_command() -> None:
    assert set(documented()) == leaves()
    # What a refused command says.
    ours = {
        command: kind for command, kind in documented().items() if kind in ("monitor", "writer", "worker")
    }
    assert {" ".join(command): kind for command, kind in rights.COMMANDS.items()} == ours


def test_those_that_run_elsewhere_do() -> None:
    for command, test in ELSEWHERE.items():
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(), (command, test)


@dataclass
class Cast:
    """Runs commands as the logins that the page names."""

    staff: Staff
    folder: Path
    done: set[str] = field(default_factory=set)

    def run(self, command: str, *arguments: str, code: int = 0) -> str:
        """What it prints."""
        self.done.add(command)
        return run(*command.split(), *arguments, dsn=self.dsn(command), folder=self.folder, code=code).output

    def dsn(self, command: str) -> str:
        role = documented()[command]
        return self.staff.dsns["stranger" if role == "none" else role]

    @contextmanager
    def beside(self, command: str, *arguments: str, until: str) -> Iterator[str]:
        """A command that runs until SIGTERM, as a process; the line in which it has said `until`."""
        self.done.add(command)
        process = start(
            command,
            *arguments,
            config=self.folder / "pytube.toml",
            PYTUBE_DSN=self.dsn(command),
        )
        assert process.stdout is not None
        assert process.stderr is not None
        said, line = "", ""
        try:
            while until not in line:
                line = (process.stdout if command == "web" else process.stderr).readline()
                assert line, f"{command} ended:\n{said}{process.stderr.read()}"
                said += line
            yield line
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
        assert process.returncode in (0, -signal.SIGTERM), said + rest  # web dies of the signal in the end
        assert "permission denied" not in rest


@pytest.fixture(params=[pytest.param("by a superuser", marks=pytest.mark.soak), "by nobody special"])
def cast(
    request: pytest.FixtureRequest, any_bare_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cast]:
    """Tables of the admin's, which the worker and the monitor may read; nothing is in the tube yet.

    An installation without a superuser gives the fewest rights, so `make test` has that one.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COPY_DSN", any_bare_dsn)
    (tmp_path / "pytube.toml").write_text(CONFIG)

    def install(dsn: str, prefix: str) -> None:
        run("install", "--roles", prefix, dsn=dsn)

    with staff(any_bare_dsn, superuser=request.param == "by a superuser", install=install) as crew:
        admin, worker, writer, monitor = map(crew.name, ("admin", "worker", "writer", "monitor"))
        crew.admin.execute(
            f"CREATE SCHEMA app AUTHORIZATION {admin}; SET ROLE {admin};"
            " CREATE TABLE app.goods (id bigint PRIMARY KEY, value text);"
            " INSERT INTO app.goods VALUES (1), (2), (3);"
            f" GRANT USAGE ON SCHEMA app TO {worker}, {writer}, {monitor};"
            f" GRANT SELECT ON app.goods TO {worker}, {monitor};"
            " CREATE TABLE app.box (id bigserial PRIMARY KEY, create_time timestamptz NOT NULL DEFAULT now(),"
            " kafka_topic varchar(249) NOT NULL, kafka_key varchar(100), kafka_value varchar(10000),"
            " kafka_header_keys text[] NOT NULL DEFAULT '{}',"
            " kafka_header_values text[] NOT NULL DEFAULT '{}', leader_id uuid);"
            " RESET ROLE; SET search_path = tube".encode()
        )
        cast = Cast(crew, tmp_path)
        cast.done.add("install")
        yield cast


def test_each_command_as_its_role(cast: Cast) -> None:
    make(cast)
    park(cast)
    backfill(cast)
    deliver(cast)
    declare(cast)
    look(cast)
    take_away(cast)
    assert cast.done == leaves() - set(ELSEWHERE)


def make(cast: Cast) -> None:
    cast.run("upgrade")
    assert "is created" in cast.run("tube create", "t", "--partitions", "2")
    assert "partitions 2 -> 8" in cast.run("tube create", "t", "--partitions", "8")
    cast.run("tube attach", "t", "app.goods", "--shards", "8")
    assert "partitions 8 -> 2" in cast.run("tube create", "t", "--partitions", "2")
    cast.run("outbox create", "o")
    assert "partitions 1 -> 6" in cast.run("outbox create", "o", "--partitions", "6")
    cast.run("outbox adopt", "box", "app.box", "--partitions", "6", "--wake")
    assert "partitions 6 -> 3" in cast.run("outbox adopt", "box", "app.box", "--partitions", "3")
    assert "app.box" in cast.run("outbox list")
    cast.run("outbox pump", "o", "--rate", "0", "--duration", "0.05", "--keys", "10")
    assert "are touched" in cast.run("touch", "t", "app.goods", "1", "2", "3")
    built = cast.staff.admin.execute(
        "SELECT count(*) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
        " WHERE i.indisvalid AND c.relname ~ '_p[0-9]+_idx$'"
    ).fetchone()
    assert built == (3,), "one each"


def park(cast: Cast) -> None:
    cast.staff.admin.execute(
        "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
        " VALUES ('t', 0, '8', 'U', 1, 'x', 1, 1), ('t', 0, '9', 'U', 1, 'x', 1, 1)"
    )
    cast.staff.admin.execute(
        "INSERT INTO tube_outbox_parked (outbox, id, topic, key, slot, error, attempts, epoch, hold, behind)"
        " SELECT 'o', r.id, r.kafka_topic, r.kafka_key, 0, 'no', 1, 1, false, false FROM o AS r"
        " ORDER BY r.id LIMIT 2"
    )
    assert "x" in cast.run("park list")
    assert "does not rest" in cast.run("outbox park", "o", "--topic", "never", "--yes", code=2)
    assert "nothing was reported" in cast.run("tube acknowledge", "t")
    assert "nothing was reported" in cast.run("outbox acknowledge", "o")
    assert "was not found emptied" in cast.run("sink accept", "--tube", "t")
    cast.run("park show", "--tube", "t", "--key", "8")
    cast.run("park retry", "--tube", "t", "--key", "8", "--yes")
    cast.run("park discard", "--tube", "t", "--yes")
    cast.run("outbox parked list")
    cast.run("outbox status")
    first, second = (
        str(id_) for (id_,) in cast.staff.admin.execute("SELECT id FROM tube_outbox_parked ORDER BY id")
    )
    assert "error: no" in cast.run("outbox parked show", "o", first)
    assert "1" in cast.run("outbox parked retry", "o", first)
    assert "discarded: 1" in cast.run("outbox parked discard", "o", second, "--yes")


def backfill(cast: Cast) -> None:
    cast.run("backfill start", "--tube", "t", "--in-worker")
    cast.run("backfill pause", "--tube", "t")
    cast.run("backfill resume", "--tube", "t")
    assert "app.goods" in cast.run("backfill status")
    cast.run("backfill cancel", "--tube", "t")
    # One that the command itself inserts.
    cast.run("backfill start", "--tube", "t")


def deliver(cast: Cast) -> None:
    cast.run("pods list", "--tube", "t")
    cast.run("pods show", "--tube", "t", "--key", "1")
    cast.run("pods discard", "--tube", "t", "--shard", "7", "--yes")
    cast.run("pods reset", "--tube", "t")
    with cast.beside("worker", until="leader_acquired"):
        cast.run("wait", "--tube", "t")
        cast.run("pause", "--tube", "t")
        cast.run("touch", "t", "app.goods", "1")
        assert "1 pod" in cast.run("pods retry", "--tube", "t", "--yes")
        stepped = CliRunner().invoke(
            cli,
            ["pods", "step", "--tube", "t"],
            input="y\n",
            env={"PYTUBE_DSN": cast.dsn("pods step"), "PYTUBE_CONFIG": str(cast.folder / "pytube.toml")},
        )
        cast.done.add("pods step")
        assert (stepped.exit_code, "1 document stepped over" in stepped.output) == (0, True), stepped.output
        cast.run("resume", "--tube", "t")
        assert "permission" not in cast.run("doctor")
        assert "keys compared" in cast.run("verify", "--tube", "t")


def declare(cast: Cast) -> None:
    path = cast.folder / "pytube.toml"
    path.write_text(CONFIG + DOCUMENT)
    assert "make tube d" in cast.run("plan")
    assert "d: applied" in cast.run("apply", "--wait")
    assert '{"value":null}' in cast.run("document show", "d", "--key", "1")
    path.write_text(CONFIG)
    assert "drop tube d" in cast.run("apply", "--prune", "--yes")


def look(cast: Cast) -> None:
    assert "app.goods" in cast.run("tube list")
    cast.run("status")
    cast.run("audit")
    cast.run("explain", "--tube", "t", "--key", "1")
    cast.run("spark jobs")
    cast.run("config show")
    schema = cast.folder / "schema.json"
    schema.write_text('[{"database": "d", "nodes": {"table": "goods", "schema": "app", "columns": ["id"]}}]')
    assert "[document." in cast.run("document from-pgsync", str(schema))
    cast.run("sink check", "--tube", "t")
    with cast.beside("web", "--listen", "127.0.0.1:0", until="http://") as said:
        address = said.split("/")[2]
        asked = f"GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        head, _ = asyncio.run(http.exchange(int(address.partition(":")[2]), asked.encode()))
        assert head.startswith("HTTP/1.1 200")
    asyncio.run(top(cast))


async def top(cast: Cast) -> None:
    cast.done.add("top")
    app = TopApp([Database(SecretStr(cast.dsn("top")))], interval=0.2)
    async with app.run_test() as pilot:
        table = app.screen_stack[0].query_one("#table", DataTable)
        await wait_until_async(lambda: table.row_count == 3, what="a sample is shown")
        await pilot.press("q")


def take_away(cast: Cast) -> None:
    cast.run("tube rebase", "t", "--epoch", "5000")
    cast.run("tube detach", "t", "app.goods")
    cast.run("tube drop", "t", "--force")
    cast.run("outbox drop", "box", "--force")
    cast.run("outbox drop", "o", "--force")
    cast.run("uninstall", "--force")
    wait_until(
        lambda: cast.staff.admin.execute("SELECT to_regnamespace('tube')").fetchone() == (None,),
        what="it is gone",
    )
