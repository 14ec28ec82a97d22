"""How long a partition stands still when its leader dies, and when it leaves in order."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from bench.frame.page import Section, Target
from bench.frame.server import Server, connect
from bench.frame.statistics import spread
from bench.frame.workers import Process, leaders, started, wait_for
from pytube.embedded.kafka_real import RealKafka

SESSION_TIMEOUT = 15.0
ROUNDS = 2
"""Enough: what is measured is timeouts, which hardly vary."""
HAND_OVER = 1 / SESSION_TIMEOUT
"""Of the take-over of the same pair: 1 s with the default session timeout."""
SETTLE = 2.0
"""Seconds after which a successor that all know of has nothing more to do."""
ROWS = 1000
HAND_OVERS = "hand-over at SIGTERM"
TAKE_OVERS = "take-over after SIGKILL"
GROUP = "pytube.default.t"


def run(server: Server) -> Section:
    """Measure."""
    section = Section(
        "Take-over and hand-over",
        "Two workers with default settings (a session timeout of 15 s) share one partition, while a row is "
        "written every 20 ms: one pair with leases in Postgres, one with neli on a real Kafka broker. The "
        "leader gets SIGTERM, and once there is another successor, that one's leader SIGKILL; from the "
        f"signal to the first document that the successor's sink takes. {ROUNDS} times each; hand-overs one "
        "after the other, take-overs of both pairs at the same time, since they only wait. Targets are "
        "for the longest: a take-over has the session timeout and 1 s more, a hand-over a fifteenth of what "
        "its pair's take-over took.",
    )
    found: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp") as name,
        RealKafka(Path(name) / "kafka") as kafka,
        _pair(server, Path(name), "lease", "") as lease,
        _pair(server, Path(name), "neli", kafka.bootstrap) as neli,
        ThreadPoolExecutor() as pool,
    ):
        pairs = (lease, neli)
        for _ in range(ROUNDS):
            _ready(pairs)
            for pair in pairs:
                found.setdefault(f"{pair.kind}, {HAND_OVERS}", []).append(pair.end(signal.SIGTERM))
            _ready(pairs)
            taken = pool.map(lambda pair: pair.end(signal.SIGKILL), pairs)
            for pair, seconds in zip(pairs, taken, strict=True):
                found.setdefault(f"{pair.kind}, {TAKE_OVERS}", []).append(seconds)
    order = sorted(found)
    section.table(["", "seconds"], [[name, spread(found[name]).text()] for name in order])
    for pair in pairs:
        hand_over, take_over = (max(found[f"{pair.kind}, {how}"]) for how in (HAND_OVERS, TAKE_OVERS))
        words = f"{pair.kind}, {TAKE_OVERS}, session timeout + 1 s"
        section.targets += [
            Target(f"{pair.kind}, hand-over to take-over", HAND_OVER, hand_over / take_over, "at most"),
            Target(words, SESSION_TIMEOUT + 1, take_over, "at most", " s"),
        ]
    for pair in pairs:
        server.drop(pair.database)
    return section


class Pair:
    """A leader and its successor; whoever was ended is replaced."""

    def __init__(self, dsn: str, folder: Path, kind: str, kafka: str, stack: ExitStack) -> None:
        self.kind = kind
        self.database = f"bench_takeover_{kind}"
        self._dsn = dsn
        self._folder = folder
        self._kafka = kafka
        self._stack = stack
        self._workers: dict[str, Process] = {}
        self._started = 0

    def fill_up(self) -> None:
        """Start workers until there are two."""
        while len(self._workers) < 2:
            self._started += 1
            name = f"{self.kind}{self._started}"
            worker = started(self._folder, self._dsn, "t", name=name, kafka=self._kafka)
            self._workers[name] = self._stack.enter_context(worker)

    def wait_ready(self) -> None:
        """One of them delivers, and the other is known to the database or the broker."""
        known = self._members if self._kafka else self._instances
        wait_for(lambda: known() == 2, "two workers that know of each other", limit=60.0)
        since = time.monotonic_ns()
        wait_for(lambda: any(worker.read(since) for worker in self._workers.values()), "a document")

    def _instances(self) -> int:
        with connect(self._dsn) as eye:
            row = eye.execute(
                "SELECT count(*) FROM tube_instance WHERE seen_at > clock_timestamp() - interval '2 s'"
            ).fetchone()
        assert row
        return int(row[0])

    def _members(self) -> int:
        client = AdminClient({"bootstrap.servers": self._kafka, "log_level": 0})
        try:
            group = client.describe_consumer_groups([GROUP])[GROUP].result()
        except KafkaException:  # the group's coordinator is not up yet
            return 0
        return len(group.members) if group.state is ConsumerGroupState.STABLE else 0

    def end(self, which: signal.Signals) -> float:
        """End the leader; seconds until another one's sink takes a document."""
        with connect(self._dsn) as eye:
            leader = self._workers.pop(leaders(eye, "t")[0])
        began = time.monotonic_ns()
        leader.process.send_signal(which)
        (successor,) = self._workers.values()
        wait_for(lambda: bool(successor.read(began)), "a successor's document", limit=60.0)
        return (min(at for _, at in successor.read(began)) - began) / 1e9


@contextmanager
def _pair(server: Server, folder: Path, kind: str, kafka: str) -> Iterator[Pair]:
    dsn = server.database(f"bench_takeover_{kind}")
    with connect(dsn) as admin:
        admin.execute(
            f"CREATE TABLE public.x AS SELECT g::bigint AS id, 0 AS v FROM generate_series(1, {ROWS}) g"
        )
        admin.execute("ALTER TABLE public.x ADD PRIMARY KEY (id)")
        admin.execute("SELECT tube_ensure_exists('t')")
        admin.execute("SELECT tube_table_ensure_attached('t', 'public.x', 0)")
    over = threading.Event()
    writer = threading.Thread(target=_write, args=(dsn, over), daemon=True)
    writer.start()
    try:
        with ExitStack() as stack:
            yield Pair(dsn, folder, kind, kafka, stack)
    finally:
        over.set()
        writer.join()


def _ready(pairs: tuple[Pair, ...]) -> None:
    """All have a leader and a successor."""
    for pair in pairs:
        pair.fill_up()
    for pair in pairs:
        pair.wait_ready()
    time.sleep(SETTLE)


def _write(dsn: str, over: threading.Event) -> None:
    number = 0
    with connect(dsn) as writer:
        while not over.wait(0.02):
            number = number % ROWS + 1
            writer.execute("UPDATE public.x SET v = v + 1 WHERE id = %s", [number])
