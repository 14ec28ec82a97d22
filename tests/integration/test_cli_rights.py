"""What commands may do with each of our roles, and what they say where their role may not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.helpers.capture import open_session
from tests.helpers.cli import run
from tests.helpers.database import preparing
from tests.helpers.outbox_sql import ADOPTED, GOHARVEST_TABLE
from tests.helpers.roles import as_role, roles
from tests.helpers.terms import Conn

CONFIG = """
[postgres]
dsn = "${PYTUBE_DSN}"
[tube.t.sink]
type = "postgres"
dsn = "${COPY_DSN}"
table = "copies"
create = true
"""
MEMBERS = {kind: f"a_{kind}" for kind in ("admin", "worker", "writer", "monitor")}


def attached_goods(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
        conn.execute("INSERT INTO public.goods VALUES (1), (2)")
        conn.execute("SELECT tube_ensure_exists('t')")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0)")


prepare = preparing(attached_goods, "people")


@pytest.fixture
def people(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A member of each of our roles, and a stranger; a tube with a table, and its configuration."""
    monkeypatch.setenv("COPY_DSN", dsn)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytube.toml").write_text(CONFIG)
    members = [f"{name} IN ROLE tube_{kind}" for kind, name in MEMBERS.items()]
    with roles(dsn, *members, "a_stranger"):
        yield dsn


def test_a_writer_touches_and_lists(people: str, conn: Conn) -> None:
    writer = as_role(people, "a_writer")
    assert "are touched in t" in run("touch", "t", "public.goods", "1", "2", dsn=writer).stdout
    assert "public.goods" in run("tube", "list", dsn=writer).stdout
    assert conn.execute("SELECT count(*) FROM tube_audit WHERE done_by = 'a_writer'").fetchone() == (1,)
    assert "run it as a member of tube_monitor; " in run("status", dsn=writer, code=2).stderr


def test_a_monitor_looks_at_all(people: str, conn: Conn, tmp_path: Path) -> None:
    """Of rows only what their owner lets it see."""
    monitor = as_role(people, "a_monitor")
    run("touch", "t", "public.goods", "1", dsn=people)
    refused = run("verify", "--tube", "t", dsn=monitor, folder=tmp_path, code=2).stderr
    assert refused.splitlines()[-1] == (
        "pytube: the role a_monitor may not do that: permission denied for table goods; no role of "
        "pytube has this right: the owner can GRANT it to a_monitor"
    )
    conn.execute("GRANT SELECT ON public.goods TO a_monitor")
    run("pause", "--tube", "t", dsn=people)
    assert (
        "keys compared"
        in run("verify", "--tube", "t", "--timeout", "0", dsn=monitor, folder=tmp_path, code=1).stdout
    )
    run("explain", "--tube", "t", "--key", "1", dsn=monitor, folder=tmp_path)
    run("pods", "show", "--tube", "t", "--key", "1", dsn=monitor, folder=tmp_path)
    for command in ("status", "tube list", "audit", "park list", "outbox status", "backfill status"):
        run(*command.split(), dsn=monitor)


WHO = {
    "status": "monitor",
    "tube list": "monitor",
    "audit": "monitor",
    "verify --tube t": "monitor",
    "explain --tube t --key 1": "monitor",
    "wait --tube t": "monitor",
    "touch t public.goods 1": "writer",
    "worker": "worker",
    "tube create t2": "admin",
    "tube drop t --force": "admin",
    "tube rebase t --epoch 5": "admin",
    "tube attach t public.goods": "admin",
    "tube detach t public.goods": "admin",
    "outbox create o": "admin",
    "pause --tube t": "admin",
    "park retry --tube t --yes": "admin",
    "pods discard --tube t --yes": "admin",
    "backfill start --tube t": "admin",
}


def test_a_stranger_learns_which_role_is_lacking(people: str, tmp_path: Path) -> None:
    stranger = as_role(people, "a_stranger")
    for command, kind in WHO.items():
        said = run(*command.split(), dsn=stranger, folder=tmp_path, code=2).stderr
        assert re.fullmatch(
            r"pytube: the role a_stranger may not do that: permission denied for [a-z]+ \w+; "
            rf"run it as a member of tube_{kind}"
            + (
                ""
                if kind == "admin"
                else rf"; if a_stranger is to be one, run: GRANT tube_{kind} TO a_stranger"
            )
            + r"\n",
            said,
        ), (command, said)


@pytest.mark.parametrize("who", ["monitor", "worker", "writer"])
def test_others_learn_who_may_act(people: str, conn: Conn, tmp_path: Path, who: str) -> None:
    """And never to grant tube_admin to whom they are: the worker's role least of all."""
    conn.execute(
        "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
        " VALUES ('t', 0, '1', 'U', 1, 'x', 1, 1)"
    )
    conn.execute("INSERT INTO tube.t (op, shard, ids) VALUES ('U', 0, '{1}')")
    for command, kind in WHO.items():
        if kind == "admin":
            said = run(*command.split(), dsn=as_role(people, f"a_{who}"), folder=tmp_path, code=2).stderr
            assert said.endswith("; run it as a member of tube_admin\n"), (command, said)
            assert "GRANT" not in said


class TestLongTables:
    """Of more than 8 MB, whose index no function builds: it would keep writers out for too long."""

    FILL = (
        "INSERT INTO tube.t (op, shard, ids) SELECT 'U', 0, '{1}' FROM generate_series(1, 150000)",
        "INSERT INTO o (kafka_topic, kafka_value) SELECT 't', repeat('x', 900) FROM generate_series(1, 9999)",
    )

    @pytest.mark.parametrize("queue", ["t", "o"])
    def test_an_admin_leaves_the_index_to_workers(self, people: str, conn: Conn, queue: str) -> None:
        conn.execute("SELECT outbox_ensure_exists('o')")
        conn.execute(self.FILL["to".index(queue)].encode())
        command = (*("tube" if queue == "t" else "outbox", "create", queue), "--partitions", "3")
        done = run(*command, dsn=as_role(people, "a_admin"))
        assert "partitions 1 -> 3" in done.stdout
        left = json.loads(done.stderr.splitlines()[-1])
        assert (left["event"], left["tube"], left["partitions"]) == ("index_left", queue, 3)
        assert left["reason"] == (
            "a_admin does not own its table: a worker builds it once the table holds at most 8 MB, and until "
            "then all works without; to have it built now, run the command again as a member of tube_owner, "
            "or as a superuser"
        )
        with psycopg.connect(as_role(people, "a_worker"), autocommit=True) as worker:
            assert worker.execute("SELECT tube.tube_index_fit()").fetchone() == (0,)
            conn.execute(f"TRUNCATE tube.{queue}".encode())
            assert worker.execute("SELECT tube.tube_index_fit()").fetchone() == (1,)
            assert worker.execute("SELECT tube.tube_index_fit()").fetchone() == (0,)
        assert "index_left" not in run(*command, dsn=as_role(people, "a_admin")).stderr

    @pytest.mark.parametrize("queue", ["t", "o"])
    def test_the_role_that_it_names_builds_it(self, people: str, conn: Conn, queue: str) -> None:
        conn.execute("SELECT outbox_ensure_exists('o')")
        conn.execute(self.FILL["to".index(queue)].encode())
        command = (*("tube" if queue == "t" else "outbox", "create", queue), "--partitions", "3")
        run(*command, dsn=as_role(people, "a_admin"))
        with roles(people, "an_installer IN ROLE tube_owner"):
            said = run(*command, dsn=as_role(people, "an_installer")).stderr
        assert [json.loads(line)["event"] for line in said.splitlines()].count("index_build_started") == 1
        assert conn.execute("SELECT tube_index_fit()").fetchone() == (0,)

    def test_an_owner_who_may_not_create_in_the_schema(self, people: str, conn: Conn) -> None:
        """As of a table in `public` since Postgres 15: it is adopted, and its index waits for the right."""
        conn.execute(GOHARVEST_TABLE.encode())
        conn.execute("ALTER TABLE public.outbox OWNER TO a_admin")
        command = ("outbox", "adopt", "box", ADOPTED, "--partitions", "3")
        done = run(*command, dsn=as_role(people, "a_admin"))
        left = json.loads(done.stderr.splitlines()[-1])
        assert left["event"] == "index_left"
        conn.execute(left["reason"].partition("run: ")[2].partition(";")[0].encode())
        assert "index_build_started" in run(*command, dsn=as_role(people, "a_admin")).stderr
        assert conn.execute("SELECT outbox_index_sql('box', 3)").fetchone() == (None,)


def test_a_table_that_has_the_name_of_a_tube(people: str, conn: Conn) -> None:
    """Postgres says the name alone; a right on somebody's table is none that a role of ours gives."""
    conn.execute("CREATE TABLE public.t (id bigint)")
    said = run(
        "touch", "t", "public.goods", "--query", "TABLE public.t", dsn=as_role(people, "a_writer"), code=2
    )
    assert "permission denied for table t; no role of pytube has this right" in said.stderr


def test_an_owner_who_has_to_agree_is_named(people: str, conn: Conn) -> None:
    """Where our SQL says what to do, nothing else is said."""
    conn.execute("CREATE TABLE public.more (id bigint PRIMARY KEY)")
    said = run("tube", "attach", "t", "public.more", "--shard", "1", dsn=as_role(people, "a_admin"), code=2)
    assert said.stderr.rstrip().endswith("or as a role that has its rights and the rights of tube_admin.)")


class TestInstalling:
    def test_a_database_without_the_right(self, bare_dsn: str) -> None:
        with roles(bare_dsn, "a_stranger CREATEROLE") as admin:
            name = admin.info.dbname
            said = run("install", "--roles", f"of_{name}", dsn=as_role(bare_dsn, "a_stranger"), code=2).stderr
        assert said == (
            f"pytube: the role a_stranger may not do that: permission denied for database {name}; "
            f"as its owner, run: GRANT CREATE ON DATABASE {name} TO a_stranger\n"
        )

    def test_roles_that_are_missing(self, bare_dsn: str) -> None:
        with roles(bare_dsn, "a_stranger") as admin:
            admin.execute(f"GRANT CREATE ON DATABASE {admin.info.dbname} TO a_stranger")
            said = run("install", "--roles", "x", dsn=as_role(bare_dsn, "a_stranger"), code=2).stderr
        assert "An administrator has to run: CREATE ROLE x_owner NOLOGIN; " in said
        assert ".sql" not in said

    @pytest.mark.parametrize("command", ["install", "upgrade", "uninstall"])
    def test_somebody_else_has_installed(self, people: str, command: str) -> None:
        # Before it, where that takes long, stands how far it has come.
        said = run(command, dsn=as_role(people, "a_stranger"), code=2).stderr.splitlines()[-1]
        assert "run it as the role that installed, which has the rights of tube_owner" in said
        assert "GRANT" not in said
        assert ".sql" not in said
