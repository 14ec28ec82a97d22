"""Fixtures of all tests: servers (one of each a session, started when first needed) and databases."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import psycopg
import pytest

from tests.helpers.database import SHARED, Prepare, TestServer, server_folder, shared_data

if TYPE_CHECKING:
    import redis

    from pytube.embedded.kafka_real import RealKafka
    from pytube.embedded.postgres import Postgres, Version
    from pytube.embedded.process import Port
    from pytube.embedded.search_server import SearchServer
    from tests.helpers.proxy import Proxy
    from tests.helpers.redis_server import RedisServer

Connect = Callable[..., "psycopg.Connection[Any]"]

TESTS = Path(__file__).resolve().parent
VERSIONS = [
    18,
    pytest.param(16, marks=pytest.mark.older_server(between=True)),
    pytest.param("system", marks=pytest.mark.older_server),
]

LONGEST = (
    "spark",
    "opensearch",
    *(
        f"tests/{file}.py"
        for file in (
            "integration/test_cli",
            "integration/test_worker_sessions",
            "sql/test_key_columns",
            "integration/test_doctor",
            "integration/test_demo",
            "sql/test_capture_ddl",
            "integration/test_print",
            "sql/test_attacks_owners",
            "integration/test_declarations",
            "integration/test_backfill",
            "crash/test_cut_off",
            "crash/test_source_changed",
            "integration/test_web",
            "sql/test_capture_partitions",
            "sql/test_install_psql",
        )
    ),
)
"""What takes one process long, the longest first: begun last, it would go on while the others are done."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our own option."""
    parser.addoption(
        "--all-servers",
        action="store_true",
        help="run each test of the SQL on all versions of Postgres, even if its subject depends on none",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set what all tests need."""
    # A shell that runs us in the background has SIGINT ignored; programs that we start would inherit it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # An example that takes long is no fault, where other tests have the machine.
    hypothesis.settings.register_profile("pytube", deadline=None)
    hypothesis.settings.load_profile("pytube")
    # Who runs tests in other processes shares the data of servers with them; so do tests of tests.
    if SHARED not in os.environ:
        stack = ExitStack()
        stack.enter_context(shared_data())
        config.add_cleanup(stack.close)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among ten thousand tests: to do so again and again took two fifths of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test the marker of its layer, which is its folder; leave long runs to `-m soak`.

    The runs on older versions of Postgres count as long, unless the test has the marker `every_server`, and
    the version is not one between the oldest and the newest; so do those that the marker `each_value` leaves.
    """
    crossed: dict[str, list[pytest.Item]] = {}
    long: list[pytest.Item] = []
    for item in items:
        item.add_marker(item.nodeid.split("/")[1])
        marks = {mark.name: mark for mark in item.iter_markers()}  # once: there are thousands of items
        if "soak" in marks:
            long.append(item)
        elif config.option.all_servers:
            continue
        elif "older_server" in marks and not (
            "every_server" in marks and not marks["older_server"].kwargs.get("between")
        ):
            long.append(item)
        elif "each_value" in marks and hasattr(item, "callspec"):
            crossed.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for runs in crossed.values():
        kept = set(_with_each_value(runs))
        long += [item for item in runs if item not in kept]
    for item in long:
        item.add_marker("soak")
    if "soak" not in config.option.markexpr:
        config.hook.pytest_deselected(items=long)
        left = set(long)
        items[:] = [item for item in items if item not in left]


def _with_each_value(runs: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of the runs of a test with several parameters, so few that each value of each is among them."""
    left = {
        item: {(name, repr(value)) for name, value in item.callspec.params.items()}
        for item in runs
        if isinstance(item, pytest.Function)
    }
    while any(left.values()):
        chosen = max(left, key=lambda item: len(left[item]))  # of those with the most that are new, the first
        values = left[chosen].copy()
        for others in left.values():
            others.difference_update(values)
        yield chosen


def scope_of(nodeid: str) -> str:
    """With which other tests one process runs this one."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/spark/"):
        return "spark"
    by_opensearch = ("opensearch", "reindex", "sink_check", "tutorial", "demo_copies", "hosts_documents")
    return "opensearch" if any(name in file for name in by_opensearch) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process runs all tests that share a file, Spark, or OpenSearch: so each of these starts once.

    What takes longest begins first. Of the rest, every other process takes the last file: tests of
    real processes, which wait, come first, and those of the SQL, which compute, last: they run side by side.
    """
    from xdist.scheduler import LoadScopeScheduling  # late: xdist may be switched off

    class ByWhatIsShared(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            ends = (next(iter(self.workqueue)), next(reversed(self.workqueue)))
            long = [scope for scope in LONGEST if scope in self.workqueue]
            chosen = long[0] if long else ends[self.nodes.index(node) % 2]
            self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)

    return ByWhatIsShared(config, log)


class Servers:
    """The Postgres servers of this session, by version."""

    def __init__(self) -> None:
        self._started: dict[Version, TestServer] = {}

    def get(self, version: Version) -> TestServer:
        """The server of `version`, started the first time; fails when the machine has none."""
        if version not in self._started:
            self._started[version] = TestServer(version)
        return self._started[version]

    def close(self) -> None:
        """End them all."""
        for server in self._started.values():
            server.close()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """All Postgres servers."""
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture(scope="session")
def postgres(servers: Servers) -> Postgres:
    """The server of the version under test, 18."""
    return servers.get(18).postgres


@pytest.fixture(scope="session")
def postgres16(servers: Servers) -> Postgres:
    """A server of version 16."""
    return servers.get(16).postgres


@pytest.fixture(scope="session")
def postgres_system(servers: Servers) -> Postgres:
    """A server of the newest version that the machine itself has."""
    return servers.get("system").postgres


@pytest.fixture
def bare_dsn(servers: Servers) -> Iterator[str]:
    """A fresh and empty database on `postgres`."""
    with servers.get(18).database(installed=False) as dsn:
        yield dsn


@pytest.fixture
def prepare() -> Prepare | None:
    """What makes the tables and tubes that a database begins with; a file that has some overrides it."""
    return None


@pytest.fixture
def dsn(servers: Servers, prepare: Prepare | None) -> Iterator[str]:
    """A fresh database on `postgres` with our SQL in it."""
    with servers.get(18).database(installed=True, prepare=prepare) as dsn:
        yield dsn


@pytest.fixture(params=VERSIONS, ids=str)
def any_server(request: pytest.FixtureRequest, servers: Servers) -> TestServer:
    """Each version's server in turn."""
    return servers.get(request.param)


@pytest.fixture
def any_bare_dsn(any_server: TestServer) -> Iterator[str]:
    """A fresh and empty database on each version."""
    with any_server.database(installed=False) as dsn:
        yield dsn


@pytest.fixture
def any_dsn(any_server: TestServer, prepare: Prepare | None) -> Iterator[str]:
    """A fresh database with our SQL in it, on each version."""
    with any_server.database(installed=True, prepare=prepare) as dsn:
        yield dsn


@pytest.fixture
def connect(dsn: str) -> Iterator[Connect]:
    """Opens sessions to `dsn` (autocommit unless told, search_path tube, public), closed at the end."""
    sessions: list[psycopg.Connection[Any]] = []

    def open_session(**options: Any) -> psycopg.Connection[Any]:
        options = {"autocommit": True, "options": "-c search_path=tube,public", **options}
        session = psycopg.connect(dsn, **options)
        sessions.append(session)
        return session

    yield open_session
    for session in sessions:
        session.close()


@pytest.fixture
def conn(connect: Connect) -> psycopg.Connection[Any]:
    """A session to `dsn`."""
    return connect()


@pytest.fixture(scope="session")
def kafka_mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of librdkafka's mock cluster, a process of its own."""
    # Imported late: the unit tests need no Kafka.
    from pytube.embedded.kafka_mock import MockKafka

    with MockKafka(tmp_path_factory.mktemp("kafka-mock")) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def dead_broker(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where no broker answers; the doctor, in this process, waits a tenth as long for one."""
    monkeypatch.setattr("pytube.health.doctor._BROKER_TIMEOUT", 0.5)
    return "127.0.0.1:1"


@pytest.fixture(scope="session")
def kafka_door() -> Iterator[Port]:
    """Where a proxy before the real broker may listen."""
    from pytube.embedded.process import Port

    with Port() as port:
        yield port


@pytest.fixture(scope="session")
def kafka_real(tmp_path_factory: pytest.TempPathFactory, kafka_door: Port) -> Iterator[RealKafka]:
    """A real broker."""
    from pytube.embedded.kafka_real import RealKafka

    with RealKafka(tmp_path_factory.mktemp("kafka"), [kafka_door.number]) as kafka:
        yield kafka


@pytest.fixture
def kafka_proxy(kafka_real: RealKafka, kafka_door: Port) -> Iterator[Proxy]:
    """The way to the real broker of those who shall lose it; whoever else uses `kafka_real` keeps it."""
    from tests.helpers.proxy import Proxy

    with Proxy(kafka_real.behind(kafka_door.number), kafka_door) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def real_opensearch() -> Iterator[SearchServer]:
    """A real OpenSearch server."""
    from pytube.embedded.search_server import OpenSearch

    with server_folder() as folder, OpenSearch(folder) as server:  # it has another user if we are root
        yield server


@pytest.fixture(scope="session")
def real_elasticsearch() -> Iterator[SearchServer]:
    """A real Elasticsearch server."""
    from tests.helpers.elasticsearch import Elasticsearch

    with server_folder() as folder, Elasticsearch(folder) as server:
        yield server


@pytest.fixture(scope="session", params=["opensearch", pytest.param("elasticsearch", marks=pytest.mark.soak)])
def opensearch(request: pytest.FixtureRequest) -> SearchServer:
    """A real OpenSearch server; in long runs, a real Elasticsearch, too."""
    server: SearchServer = request.getfixturevalue(f"real_{request.param}")
    return server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    from tests.helpers.redis_server import RedisServer

    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_store(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client of the empty server."""
    with redis_server.client() as client:
        client.client_unpause()
        client.flushall()
        client.config_set("maxmemory", 0)
        client.config_set("repl-diskless-sync-delay", 0)
        client.config_set("maxmemory-policy", "noeviction")
        client.config_resetstat()
        yield client
