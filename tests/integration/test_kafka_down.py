"""A Kafka cluster that can't be reached: said once, by those who need it, where nobody has to reach it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from pytube.db.database import Database
from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.process import Port
from pytube.health.troubles import lines as troubles
from pytube.health.watcher import FleetWatcher
from pytube.logs import Logger
from pytube.web.app import application
from pytube.web.site import Place, Sampler, Site
from tests.helpers.asgi import Browser
from tests.helpers.cli import run, run_json, start
from tests.helpers.forked import Piped
from tests.helpers.http import get
from tests.helpers.outbox import stash
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.terms import Conn, scalar
from tests.helpers.waiting import wait_until

SETTINGS = """
[postgres]
dsn = "{dsn}"
[kafka]
bootstrap_servers = "{kafka}"
[worker]
client_id = "{client_id}"
installation = "{installation}"
{more}
[tube.live.sink]
type = "jsonl"
path = "{folder}/live.jsonl"
[tube.topic.sink]
type = "kafka"
bootstrap_servers = "{kafka}"
topic = "{installation}-copy"
create_topic = true
timeout = 2.0
[outbox.orders]
message_timeout = 2.0
"""


@pytest.fixture(autouse=True)
def _queues(conn: Conn) -> None:
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, n int)")
    for tube in ("live", "topic"):
        conn.execute("SELECT tube_ensure_exists(%s, 2)", (tube,))
        conn.execute("SELECT tube_table_ensure_attached(%s, 'public.goods', 0)", (tube,))
    conn.execute("SELECT outbox_ensure_exists('orders', 2)")


class OneWorker:
    """A worker process for two tubes and an outbox."""

    def __init__(self, tmp_path: Path, dsn: str, kafka: str, client_id: str = "one", more: str = "") -> None:
        self.client_id = client_id
        self.folder = tmp_path / client_id
        self.folder.mkdir()
        settings = SETTINGS.format(
            dsn=dsn,
            kafka=kafka,
            client_id=client_id,
            installation=tmp_path.name.replace("_", "-"),
            more=more,
            folder=tmp_path,
        )
        (self.folder / "pytube.toml").write_text(settings)

    @contextmanager
    def running(self) -> Iterator[Piped]:
        process = start("worker", config=self.folder / "pytube.toml")
        try:
            yield process
        finally:
            process.kill()
            print(*process.communicate())  # noqa: T201 # shown where a test fails


def led(conn: Conn) -> int:
    """Partitions with a leader that lives, of six."""
    return int(scalar(conn, "SELECT count(*) FROM tube.tube_leaders() WHERE NOT lost"))


def kafka_lines(dsn: str, *command: str) -> list[str]:
    """What a command says of Kafka."""
    return [timeless(line) for line in run(*command, dsn=dsn).output.splitlines() if "Kafka at" in line]


def timeless(line: str) -> str:
    """Without what librdkafka measured at its last try, as another one may come between two looks."""
    line = re.sub(r"\(after \d+ms ", "(after a while ", line)
    return re.sub(r", \d+ identical error\(s\) suppressed", "", line)


def delivery_checks(dsn: str, folder: Path) -> list[tuple[str, str, str]]:
    """Subject, finding and remedy of what the doctor finds wrong with partitions, in the database."""
    found = json.loads(run("doctor", "--json", dsn=dsn, folder=folder, code=1).stdout)
    return [
        (one["subject"], timeless(one["finding"]), one["remedy"] or "")
        for one in found
        if one["level"] != "ok" and re.match(r"Kafka|leaders|partitions? [0-9]", one["subject"])
    ]


def said_by_pages(dsn: str) -> tuple[list[str], str]:
    """The troubles of `pytube top`, and the text of the first page of `pytube web`."""
    database = Database(SecretStr(dsn))
    with closing(FleetWatcher([database])) as watcher:
        sampler = Sampler(watcher, 1.0, 1.0, Logger("test"))
        site = Site({None: Place(database)}, sampler, None)
        page = Browser(application(site, ["127.0.0.1"], Logger("test"))).get("/")
        return [timeless(line) for line in troubles(sampler.latest)], page.said


def metrics(dsn: str, port: int) -> dict[str, str]:
    """What the fleet and the worker measure of Kafka."""
    of_fleet = run("status", "--prometheus", dsn=dsn).stdout
    _, of_worker = asyncio.run(get(port, "/metrics"))
    lines = [line.rsplit(" ", 1) for line in (of_fleet + of_worker).splitlines() if "kafka" in line]
    return {name: value for name, value in lines if not name.startswith("#")}


def test_a_dead_broker_is_told_of_once_with_its_reason_until_it_is_back(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka
) -> None:
    with Port() as port:
        one = OneWorker(tmp_path, dsn, kafka_real.bootstrap, more=f'listen = "127.0.0.1:{port.number}"')
        up = f'pytube_kafka_up{{bootstrap_servers="{kafka_real.bootstrap}"}}'
        with one.running():
            wait_until(lambda: led(conn) == 6, what="all is led")
            assert kafka_lines(dsn, "status") == []
            assert metrics(dsn, port.number) == {up: "1.0"}
            kafka_real.kill()
            try:
                conn.execute("INSERT INTO public.goods SELECT n, n FROM generate_series(1, 20) AS n")
                stash(conn, "records", ["a", "b"])
                down = "SELECT count(DISTINCT tube) FROM tube.tube_leaders() WHERE sink_down IS NOT NULL"
                wait_until(lambda: bool(kafka_lines(dsn, "status")), what="status tells of it")
                wait_until(lambda: scalar(conn, down) == 2, what="tube and outbox can't deliver there")
                (line,) = kafka_lines(dsn, "status")
                lines = run("status", dsn=dsn).output.splitlines()
                told = [timeless(each) for each in lines if ": " in each]
                of_outbox = kafka_lines(dsn, "outbox", "status")
                said, page = said_by_pages(dsn)
                checks = delivery_checks(dsn, one.folder)
                measured = metrics(dsn, port.number)
            finally:
                kafka_real.start()
            wait_until(lambda: kafka_lines(dsn, "status") == [], what="the line goes")
            wait_until(lambda: metrics(dsn, port.number) == {up: "1.0"}, what="it is up")
    start = f"Kafka at {kafka_real.bootstrap} can't be used by one since 20"
    assert line.startswith(start)
    assert re.search(r"UTC: .*(refused|Disconnected)", line), line
    assert "; nothing is delivered there for: orders, topic: bring it up, or find out from " in line
    assert line.endswith("continue automatically; more: docs/errors.md#kafka-unreachable")
    assert told == [line], "the partitions say nothing of their own"
    assert of_outbox == [line.replace("orders, topic", "orders")]
    assert [each[: len(start)] for each in said] == [start]
    assert page.count("can't be used") == 1
    assert "start a worker" not in page
    ((subject, finding, remedy),) = checks
    assert (subject, finding[: len(start)]) == ("Kafka", start)
    assert "start a worker" not in remedy
    assert measured == {up: "0.0"} | {
        f'pytube_fleet_kafka_unreachable_workers{{bootstrap_servers="{kafka_real.bootstrap}",tube="{name}",'
        f'use="{use}"}}': "1.0"
        for use, names in (("election", ("live", "orders", "topic")), ("delivery", ("orders", "topic")))
        for name in names
    }


def test_partitions_without_a_leader_for_want_of_kafka_need_no_other_worker(
    tmp_path: Path, dsn: str, conn: Conn, kafka_real: RealKafka, kafka_proxy: Proxy
) -> None:
    """One worker alone can't reach it, and begins while that is so."""
    conn.execute("INSERT INTO public.goods SELECT n, n FROM generate_series(1, 20) AS n")
    one = OneWorker(tmp_path, dsn, kafka_proxy.address)
    kafka_proxy.switch(Mode.CUT)
    with one.running() as process:
        wait_until(lambda: bool(kafka_lines(dsn, "status")), what="status tells of it")
        (line,) = kafka_lines(dsn, "status")
        assert "; no worker can be elected for partitions of: live, orders, topic; nothing" in line
        ((subject, finding, remedy),) = delivery_checks(dsn, one.folder)
        assert (subject, f"{finding}: {remedy}; more: docs/errors.md#kafka-unreachable") == ("Kafka", line)
        assert "start a worker" not in remedy
        said, page = said_by_pages(dsn)
        assert said == [line]
        assert "start a worker" not in page
        assert run_json("status", "--fleet", dsn=dsn)["disagreements"] == []
        with OneWorker(tmp_path, dsn, kafka_real.bootstrap, "two").running():
            wait_until(lambda: led(conn) == 6, what="the other one leads all")
            wait_until(
                lambda: "no worker can be elected" not in "".join(kafka_lines(dsn, "status")),
                what="only its own trouble is left",
            )
            (line,) = kafka_lines(dsn, "status")
            assert line.startswith(f"Kafka at {kafka_proxy.address} can't be used by one since")
            kafka_proxy.switch(Mode.PASS)
            share = "SELECT count(DISTINCT client_id) FROM tube.tube_leaders() WHERE NOT lost"
            wait_until(lambda: scalar(conn, share) == 2, what="they share")
            wait_until(lambda: kafka_lines(dsn, "status") == [], what="the line goes")
        assert process.poll() is None


def test_a_worker_that_is_about_to_be_elected_is_not_asked_for(
    tmp_path: Path, dsn: str, conn: Conn, kafka_proxy: Proxy
) -> None:
    """From when Kafka is back until the group has given it the partitions."""
    conn.execute("INSERT INTO public.goods SELECT n, n FROM generate_series(1, 20) AS n")
    kafka_proxy.switch(Mode.CUT)
    with OneWorker(tmp_path, dsn, kafka_proxy.address).running():
        wait_until(lambda: bool(kafka_lines(dsn, "status")), what="status tells of it")
        kafka_proxy.switch(Mode.PASS)
        said = list[str]()

        def is_led() -> bool:
            said.append(run("status", dsn=dsn).output)
            return led(conn) == 6

        wait_until(is_led, what="it leads all")
    waits = [text for text in said if "no worker leads" in text]
    assert not any("start a worker" in text for text in waits), waits
    assert all("the election is about to give them to worker one" in text for text in waits), waits
