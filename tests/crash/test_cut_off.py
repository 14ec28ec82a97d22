"""One worker of two loses the way to Postgres, to Kafka or to its sink, and finds it again."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.process import HOST
from tests.crash.conftest import MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.load import Load
from tests.crash.remote_sink import collecting
from tests.helpers.proxy import Mode, Proxy

LOST = [Mode.CUT, Mode.HALF_OPEN, Mode.ANSWERS_LOST]
DELAY = 0.05
"""Seconds, each way, of a slow network."""

STOP_LIMIT = 20.0
"""Seconds within which a worker ends: drain limit and request timeout, answers not had, a group left."""

quick = {
    ("postgres", "lease", Mode.ANSWERS_LOST),
    ("kafka", "neli", Mode.HALF_OPEN),
    ("sink", "lease", Mode.HALF_OPEN),
}
MATRIX = [
    pytest.param(*case, id="-".join(case), marks=[] if case in quick else [pytest.mark.soak])
    for server, elections in (
        ("postgres", ("lease", "neli")),
        ("kafka", ("neli",)),
        ("sink", ("lease", "neli")),
    )
    for election in elections
    for case in [(server, election, mode) for mode in LOST]
]
SLOW = [
    pytest.param(server, election, id=f"{server}-{election}", marks=[] if quickly else [pytest.mark.soak])
    for server, election, quickly in (
        ("postgres", "lease", True),
        ("postgres", "neli", False),
        ("kafka", "neli", False),
        ("sink", "lease", False),
    )
]


class Outpost:
    """A fleet whose worker 1 reaches one of its servers by a way of its own."""

    def __init__(self, fleet: Fleet, way: Proxy) -> None:
        self.fleet = fleet
        self.way = way

    def begin(self) -> None:
        """Both workers lead."""
        self.fleet.start(1, 2)
        self.fleet.wait_for_leaders({1, 2})

    def delivers(self, number: int, lines: int = 50) -> None:
        """Worker `number` delivers so many more documents."""
        before = self.fleet.sink_lines(number)
        self.fleet.wait_until(
            lambda: self.fleet.sink_lines(number) > before + lines, f"worker {number} delivers"
        )

    def troubles(self, number: int) -> Counter[str]:
        """What a worker has complained of, and how often; its partitions speak for themselves."""
        said: Counter[str] = Counter()
        for line in self.fleet.log(number).splitlines():
            entry = json.loads(line) if line.startswith("{") else {"event": line, "level": "error"}
            if entry["level"] in ("warning", "error"):
                said[f"{entry['event']} {entry.get('partition', '')}"] += 1
        return said

    def end_while(self, mode: Mode) -> None:
        """SIGTERM ends worker 1 in bounded time, whatever it can't reach."""
        self.way.switch(mode)
        began = time.monotonic()
        assert self.fleet.terminate(1) == [0]
        assert time.monotonic() - began < STOP_LIMIT, self.fleet.last_words()
        self.way.switch(Mode.PASS)

    def close(self, workers: int = 1) -> None:
        """All is delivered, and nothing is old."""
        self.fleet.wait_until_drained()
        assert self.fleet.terminate() == [0] * workers
        verdict = self.fleet.judge()
        assert verdict.is_good, verdict
        assert verdict.older_term_after_newer == 0, verdict


@pytest.fixture
def server(request: pytest.FixtureRequest) -> str:
    """What worker 1 loses."""
    return str(request.param)


@pytest.fixture
def election(request: pytest.FixtureRequest) -> str:
    """What decides who leads."""
    return str(request.param)


@pytest.fixture
def outpost(
    request: pytest.FixtureRequest,
    make_fleet: MakeFleet,
    dsn: str,
    tmp_path: Path,
    server: str,
    election: str,
) -> Iterator[Outpost]:
    options: dict[str, object] = {}
    with ExitStack() as stack:
        if election == "neli":
            options["kafka"] = request.getfixturevalue("kafka_real").bootstrap
        if server == "postgres":
            way = stack.enter_context(Proxy(int(str(conninfo_to_dict(dsn)["port"]))))
            detour = {"DSN": make_conninfo(dsn, host=HOST, port=way.port)}
        elif server == "kafka":
            way = request.getfixturevalue("kafka_proxy")
            detour = {"KAFKA": way.address}
        else:
            collector = stack.enter_context(collecting(tmp_path / "sink.jsonl"))
            options["collector"] = f"{HOST}:{collector.port}"
            way = stack.enter_context(Proxy(collector.port))
            detour = {"COLLECTOR": way.address}
        fleet = make_fleet(**options, environments={1: detour})
        yield Outpost(fleet, way)


@pytest.mark.parametrize(("server", "election", "mode"), MATRIX, indirect=["server", "election"])
def test_a_worker_that_is_cut_off_comes_back_by_itself(outpost: Outpost, server: str, mode: Mode) -> None:
    fleet = outpost.fleet
    outpost.begin()
    with Load(fleet.dsn):
        outpost.delivers(1)
        outpost.way.switch(mode)
        if server == "sink":  # it leads on: nobody else may write its partitions
            fleet.wait_until(lambda: any(fleet.events(1, "sink_down")), "worker 1 tells of its sink")
        else:
            fleet.wait_for_leaders({2})
        outpost.delivers(2)
        told = outpost.troubles(1)
        assert max(told.values()) <= 2, told
        assert not [event for event in told if "exception" in event or "psycopg" in event], told
        outpost.way.switch(Mode.PASS)
        fleet.wait_for_leaders({1, 2})
        outpost.delivers(1)
        outpost.end_while(mode)
        outpost.delivers(2)
    outpost.close()


def test_a_worker_that_the_group_has_lost_delivers_until_another_one_acquires(
    make_fleet: MakeFleet, kafka_real: RealKafka, kafka_proxy: Proxy
) -> None:
    """It reaches Postgres and not Kafka; nobody else is there at first."""
    fleet = make_fleet(kafka=kafka_real.bootstrap, environments={1: {"KAFKA": kafka_proxy.address}})
    outpost = Outpost(fleet, kafka_proxy)
    fleet.start(1)
    fleet.wait_for_leaders({1})
    with Load(fleet.dsn):
        kafka_proxy.switch(Mode.CUT)
        fleet.wait_until(lambda: any(fleet.events(1, "group_lost")), "the group has lost worker 1")
        outpost.delivers(1)
        assert not any(fleet.events(1, "trust_lapsed"))
        assert not any(fleet.events(1, "leader_fenced"))
        fleet.start(2)
        fleet.wait_for_leaders({2})
        outpost.delivers(2)
        fleet.wait_until(lambda: any(fleet.events(1, "leader_fenced")), "worker 1 sees that it is fenced")
        kafka_proxy.switch(Mode.PASS)
        fleet.wait_for_leaders({1, 2})
        outpost.delivers(1)
    outpost.close(2)


def test_one_worker_reaches_postgres_alone_and_the_other_kafka_alone(
    make_fleet: MakeFleet, dsn: str, kafka_real: RealKafka, kafka_proxy: Proxy
) -> None:
    """The first delivers what it led; the second, whom the group knows at first, can't acquire anything."""
    with Proxy(int(str(conninfo_to_dict(dsn)["port"]))) as postgres_proxy:
        fleet = make_fleet(
            kafka=kafka_real.bootstrap,
            environments={
                1: {"KAFKA": kafka_proxy.address},
                2: {"DSN": make_conninfo(dsn, host=HOST, port=postgres_proxy.port)},
            },
        )
        outpost = Outpost(fleet, kafka_proxy)
        outpost.begin()
        with Load(fleet.dsn):
            kafka_proxy.switch(Mode.CUT)
            postgres_proxy.switch(Mode.CUT)
            fleet.wait_until(lambda: any(fleet.events(1, "group_lost")), "the group has lost worker 1")
            fleet.wait_until(lambda: any(fleet.events(2, "claims_paused")), "worker 2 leaves the group")
            outpost.delivers(1)
            assert not any(fleet.events(1, "trust_lapsed"))
            kafka_proxy.switch(Mode.PASS)
            postgres_proxy.switch(Mode.PASS)
            fleet.wait_for_leaders({1, 2})
            outpost.delivers(2)
        outpost.close(2)


@pytest.mark.parametrize(("server", "election"), SLOW, indirect=True)
def test_a_worker_behind_a_slow_network_delivers(outpost: Outpost) -> None:
    fleet = outpost.fleet
    outpost.begin()
    with Load(fleet.dsn):
        outpost.way.switch(Mode.SLOW, delay=DELAY)
        outpost.delivers(1, 200)
        assert set(fleet.leaders().values()) == {1, 2}
        assert not any(fleet.events(1, "trust_lapsed"))
        outpost.end_while(Mode.SLOW)
        outpost.delivers(2)
    outpost.close()
