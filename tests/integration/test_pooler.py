"""Behind a real PgBouncer: served by a pool in session mode, else refused before a session is changed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql.types import IntegerType, StructField, StructType

from pytube.config import load
from pytube.db import pooler
from pytube.db.connect import connect_async, connect_sync
from pytube.db.install import install, uninstall, upgrade
from pytube.errors import DatabaseUnavailable, PooledSession, PytubeError
from pytube.health.doctor import examine
from pytube.health.findings import Level
from pytube.model import OK, Batch, Result
from pytube.spark.hosts import Host
from pytube.spark.source import Piece, read
from pytube.worker import Worker
from tests.conftest import Connect
from tests.helpers.cli import leaves, run, start
from tests.helpers.logs import capture_logs
from tests.helpers.pgbouncer import pgbouncer, programs
from tests.helpers.waiting import wait_until_async

EACH = sorted(programs()) or ["none"]
Conn = psycopg.Connection[Any]

ONE = StructType([StructField("a", IntegerType())])

delivered: set[object] = set()


def send(batch: Batch) -> Sequence[Result]:
    """Takes everything."""
    delivered.update(document.id for document in batch)
    return [OK] * len(batch)


@pytest.fixture(params=EACH)
def program(request: pytest.FixtureRequest) -> Path:
    """Each PgBouncer of this machine."""
    assert request.param in programs(), "PgBouncer is not installed: run .ci/system"
    return programs()[request.param]


@pytest.fixture(autouse=True)
def nothing_proven() -> Iterator[None]:
    """Ports are used again."""
    pooler._proofs.clear()
    yield
    pooler._proofs.clear()


def configuration(folder: Path, dsn: str, tube: str = "t") -> Path:
    """A configuration with one tube."""
    path = folder / "pytube.toml"
    path.write_text(
        f'[postgres]\ndsn = "{dsn}"\n[tube.{tube}.sink]\ntype = "callable"\ntarget = "{__name__}:send"\n'
    )
    return path


# --- refused --------------------------------------------------------------------------------------------

REFUSED = [
    "install",
    "upgrade",
    "uninstall --force",
    "status",
    "park list",
    "tube acknowledge t",
    "sink accept --tube t",
    "tube list",
    "tube create other",
    "tube attach t public.items",
    "tube detach t public.items",
    "tube rebase t --epoch 7",
    "tube drop t",
    "backfill start --tube t --table public.items",
    "backfill resume --tube t",
    "backfill pause --tube t",
    "backfill cancel --tube t",
    "backfill status",
    "spark jobs",
    "audit",
    "outbox acknowledge o",
    "outbox adopt o public.items",
    "outbox create o",
    "outbox parked discard o 1",
    "outbox drop o",
    "outbox list",
    "outbox park o --topic x",
    "outbox parked list",
    "outbox parked show o 1",
    "outbox pump o --duration 1",
    "outbox parked retry o --all",
    "outbox status",
    "park discard --tube t",
    "park retry --tube t",
    "park show --tube t --key 1",
    "pause --tube t",
    "pods discard --tube t --key 1",
    "pods list --tube t",
    "pods reset --tube t --key 1",
    "pods retry --tube t --key 1",
    "resume --tube t",
    "touch t public.items 1",
    "wait --tube t",
]
REFUSED_WITH_A_CONFIGURATION = [
    "apply",
    "document show t",
    "explain --tube t --key 1",
    "plan",
    "pods show --tube t --key 1",
    "pods step --tube t",
]
WITHOUT_DATABASE = ["config show", "demo", "dev", "document from-pgsync", "sink check"]
BY_THE_CONFIGURATION = ["doctor", "worker"]
BY_OTHERS = [
    "top",
    "verify",
    "web",
    *(f"reindex {step}" for step in ("abandon", "compare", "finish", "start", "status", "switch")),
]
"""Not tried: they want a terminal, a browser or a sink that can be read. Their sessions are as all others."""
BY_A_HOST = ["spark backfill", "spark fanout", "spark reconcile", "spark touch"]
"""Their sessions are those of `Host`."""

LEFT_BEHIND = """
    SELECT 'setting ' || name, setting FROM pg_settings
    UNION ALL SELECT 'prepared ' || name, statement FROM pg_prepared_statements
    UNION ALL SELECT 'listens', channel FROM pg_listening_channels() AS channel
    UNION ALL SELECT 'lock', concat_ws(' ', locktype, classid, objid) FROM pg_locks
        WHERE pid = pg_backend_pid() AND locktype = 'advisory'
    UNION ALL SELECT 'relation', relname FROM pg_class WHERE relpersistence = 't'
    UNION ALL SELECT 'cursor', name FROM pg_cursors WHERE is_holdable
    UNION ALL SELECT 'backend', pg_backend_pid()::text
    ORDER BY 1, 2
"""


def test_every_command_is_tried() -> None:
    others = {*WITHOUT_DATABASE, *BY_THE_CONFIGURATION, *BY_A_HOST, *BY_OTHERS}
    refused = [*REFUSED, *REFUSED_WITH_A_CONFIGURATION]
    tried = {name for name in leaves() for words in refused if f"{words} ".startswith(f"{name} ")}
    assert tried | others == leaves()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_nothing_is_changed_in_a_session_of_others(
    program: Path, mode: str, dsn: str, conn: Conn, tmp_path: Path
) -> None:
    """One server session for all: what a client of the application finds in it stays as it was."""
    conn.execute("SELECT tube_ensure_exists('t', 1); CREATE TABLE public.items (id bigint PRIMARY KEY)")
    conn.execute(f'ALTER DATABASE "{conn.info.dbname}" SET client_encoding = LATIN1')
    with (
        pgbouncer(program, dsn, mode, default_pool_size=1) as pooled,
        psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as application,
    ):
        before = application.execute(LEFT_BEHIND).fetchall()

        def check(what: str, act: Callable[[], object]) -> None:
            act()
            found = application.execute(LEFT_BEHIND).fetchall()
            assert found == before, f"{what} left {set(found) ^ set(before)}"

        for words in REFUSED:
            check(words, partial(refused, words, pooled))
        config = configuration(tmp_path, pooled)
        for words in REFUSED_WITH_A_CONFIGURATION:
            check(words, partial(refused, f"--config {config} {words}", pooled, named=False))
        check("doctor", lambda: run("--config", str(config), "doctor", code=1))
        for name, act in {
            "connect_sync": lambda: connect_sync(pooled),
            "connect_async": lambda: asyncio.run(connect_async(pooled)),
            "install": lambda: install(pooled),
            "upgrade": lambda: upgrade(pooled),
            "uninstall": lambda: uninstall(pooled, force=True),
            "Worker": lambda: asyncio.run(Worker(load(config)).start()),
            "Host": lambda: Host(pooled).connect(),
            "Spark's read": lambda: list(read(Host(pooled), ONE, Piece("SELECT 1 AS a", ()))),
        }.items():
            check(name, partial(raises, act))


def raises(act: Callable[[], object]) -> None:
    with pytest.raises(PooledSession):
        act()


def refused(words: str, dsn: str, *, named: bool = True) -> None:
    """A command ends with one sentence, and the exit code of a wrong configuration."""
    said = run(*words.split(), dsn=dsn if named else None, code=2).stderr
    address = "{host}:{port}".format(**conninfo_to_dict(dsn))
    sentences = [line for line in said.splitlines() if line.startswith("pytube: ")]
    assert len(sentences) == 1, said
    assert f"the pooler at {address} is in transaction or statement mode" in sentences[0]
    sentence, _, page = sentences[0].rpartition("; more: ")
    assert sentence.endswith("connect to Postgres itself, or to a pool with pool_mode = session")
    assert page == "docs/errors.md#pooledsession"


def test_the_password_is_not_shown(program: Path, dsn: str) -> None:
    with pgbouncer(program, dsn, "transaction") as pooled:
        with pytest.raises(PooledSession) as refusal:
            connect_sync(make_conninfo(pooled, password="hunter2"))
        assert "hunter2" not in str(refusal.value)


def test_the_doctor_fails(program: Path, dsn: str, tmp_path: Path) -> None:
    with pgbouncer(program, dsn, "transaction") as pooled:
        checks = list(examine(load(configuration(tmp_path, pooled))))
        (check,) = [check for check in checks if check.subject == "pooler"]
        assert check.level is Level.FAIL
        assert check.finding.startswith("the pooler at 127.0.0.1:")
        assert check.remedy == "connect to Postgres itself, or to a pool with pool_mode = session"
        assert "Postgres" not in {check.subject for check in checks}  # nothing says that all is well with it


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("transaction", {"server_round_robin": 1}),
        ("transaction", {"server_reset_query_always": 1}),
        ("transaction", {"server_lifetime": 0}),
        ("session", {"server_reset_query": ""}),
    ],
)
def test_other_settings_of_poolers(
    program: Path, mode: str, settings: dict[str, str | int], dsn: str
) -> None:
    with pgbouncer(program, dsn, mode, **settings) as pooled, pytest.raises(PooledSession):
        connect_sync(pooled)


@pytest.mark.parametrize("size", [1, 3])
def test_a_busy_pool_in_transaction_mode(program: Path, size: int, dsn: str) -> None:
    """Other clients take server sessions at all times, and even reset them."""
    over = threading.Event()
    statements = ["SELECT pg_sleep(random() * 0.003)", "DISCARD ALL", "SELECT 1"]

    def work(dsn: str) -> None:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as client:
            while not over.is_set():
                for statement in statements:
                    client.execute(statement.encode())

    with pgbouncer(program, dsn, "transaction", default_pool_size=size) as pooled:
        clients = [threading.Thread(target=work, args=(pooled,)) for _ in range(4)]
        for client in clients:
            client.start()
        try:
            for _ in range(5):
                with pytest.raises(PooledSession):
                    connect_sync(pooled)
        finally:
            over.set()
            for client in clients:
                client.join()


def test_two_poolers_behind_one_name(program: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two clients that watch each other may reach different pools: neither gets the other's session."""
    with pgbouncer(program, dsn, "transaction") as one, pgbouncer(program, dsn, "transaction") as other:
        ways = iter([one, other])
        client = pooler._Client
        monkeypatch.setattr(pooler, "_Client", lambda _: client(next(ways)))
        with pytest.raises(PooledSession, match="did not show that it resets a session"):
            connect_sync(one)


@pytest.mark.parametrize("program", EACH[:1], indirect=True)
def test_a_worker_that_starts_ends(program: Path, dsn: str, tmp_path: Path) -> None:
    with pgbouncer(program, dsn, "transaction") as pooled:
        process = start("worker", config=configuration(tmp_path, pooled))
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.count("in transaction or statement mode") == 1


async def test_a_worker_that_runs_refuses_and_says_it_once(
    program: Path, dsn: str, conn: Conn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 1)")
    worker = Worker(load(configuration(tmp_path, dsn)))
    await worker.start()
    refusals: list[PytubeError] = []
    opening = worker._hosts[0].database._open

    async def counted(*arguments: Any) -> Any:
        try:
            return await opening(*arguments)
        except PooledSession as error:
            refusals.append(error)
            raise

    monkeypatch.setattr(worker._hosts[0].database, "_open", counted)
    try:
        with pgbouncer(program, dsn, "transaction") as pooled, capture_logs() as log:
            worker._hosts[0].database._postgres = load(configuration(tmp_path, pooled)).postgres
            ours = "datname = current_database() AND application_name LIKE 'pytube %'"
            conn.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}".encode())
            await wait_until_async(lambda: len(refusals) > 5, what="more sessions are refused")
        said = [entry for entry in log if entry["event"] == "session_refused"]
        assert len(said) == 1, log
        assert "in transaction or statement mode" in said[0]["reason"]
        worker._hosts[0].database._postgres = load(configuration(tmp_path, dsn)).postgres
        await wait_until_async(lambda: worker._hosts[0].database.down_for == 0 and bool(worker.leads("t")))
    finally:
        await worker.stop()


# --- served ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"default_pool_size": 2},
        {},
        {"server_reset_query": "", "server_lifetime": 0},
    ],
)
def test_a_pool_in_session_mode(
    program: Path, settings: dict[str, str | int], dsn: str, tmp_path: Path
) -> None:
    """Whatever its size, be sessions reset or ended: the next client finds nothing of ours."""
    with pgbouncer(program, dsn, "session", **settings) as pooled:
        run("tube", "create", "t", dsn=pooled)
        assert "t" in run("tube", "list", dsn=pooled).stdout
        checks = {check.subject: check for check in examine(load(configuration(tmp_path, pooled)))}
        assert (checks["pooler"].level, checks["pooler"].finding) == (Level.OK, "in session mode")
        (batch,) = read(Host(pooled), ONE, Piece("SELECT 1 AS a", ()))
        assert batch.to_pydict() == {"a": [1]}
        with psycopg.connect(dsn) as fresh, psycopg.connect(pooled) as application:
            for name in ("search_path", "lock_timeout", "idle_in_transaction_session_timeout"):
                query = f"SHOW {name}".encode()
                assert application.execute(query).fetchone() == fresh.execute(query).fetchone(), name


def test_a_pool_without_a_second_session(program: Path, dsn: str) -> None:
    """Nothing can be seen, so nothing is promised."""
    with pgbouncer(program, dsn, "session", default_pool_size=1) as pooled:
        with pytest.raises(DatabaseUnavailable, match="its pool needs two to spare"):
            connect_sync(pooled)
        with psycopg.connect(pooled) as application:
            assert application.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_a_pool_is_looked_at_once_a_minute(program: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    watch = pooler._watch

    def counted(conninfo: str) -> Any:
        looks.append(conninfo)
        return watch(conninfo)

    monkeypatch.setattr(pooler, "_watch", counted)
    with pgbouncer(program, dsn, "session") as pooled:
        for name in ("pytube one", "pytube other"):
            connect_sync(pooled, application_name=name).close()
        assert len(looks) == 1
        monkeypatch.setattr(pooler, "_HOLDS", 0.0)
        assert not pooler.is_proven(looks[0])
    connect_sync(dsn).close()
    assert len(looks) == 1


async def test_a_worker_behind_a_pool_in_session_mode(
    program: Path, dsn: str, connect: Connect, conn: Conn, tmp_path: Path
) -> None:
    """It delivers, and notifications wake it."""
    delivered.clear()
    conn.execute(f'ALTER DATABASE "{conn.info.dbname}" SET pytube.wake = on')
    conn.execute("SELECT tube_ensure_exists('t', 1); CREATE TABLE public.items (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.items', 0, 1)")
    with pgbouncer(program, dsn, "session") as pooled:
        worker = Worker(load(configuration(tmp_path, pooled)))
        await worker.start()
        try:
            await wait_until_async(
                lambda: worker._hosts[0].database.notifications_work, what="notifications arrive"
            )
            connect().execute("INSERT INTO public.items SELECT generate_series(1, 10)")
            await wait_until_async(lambda: delivered == set(range(1, 11)), what="all is delivered")
        finally:
            await worker.stop()
