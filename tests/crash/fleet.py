"""The fleet: worker processes as an operator runs them, to be killed and stopped."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from pytube.sinks.jsonl import Tail, parse
from tests.crash.comparing_sink import COMPARING_SINK_PATH
from tests.crash.judge import Verdict, judge
from tests.helpers.armed import module
from tests.helpers.capture import open_session
from tests.helpers.database import ROOT
from tests.helpers.forked import Program, start
from tests.helpers.observer import Observer
from tests.helpers.sweepable import offer_sweepable
from tests.helpers.waiting import LIMIT, wait_until

CONFIG = """
[postgres]
dsn = "${{DSN}}"
answer_timeout = 3.0

[worker]
installation = "{installation}"
client_id = "${{CLIENT_ID}}"
election = "{election}"
session_timeout = {session_timeout}
receive_deadline = {receive_deadline}
drain_limit = 5.0
meter_interval = 1.0

{kafka}

[tube.items.sink]
request_timeout = {request_timeout}
"""
JSONL = """
type = "jsonl"
path = "{sink}"
client = "${{CLIENT_ID}}"
"""
SLOW = """
type = "callable"
target = "tests.crash.slow_sink:send"
"""
COMPARING = """
type = "callable"
target = "tests.crash.comparing_sink:send"
compares = true
"""
SWEEPABLE = JSONL.replace('"jsonl"', '"sweepable"')
COLLECTED = """
type = "callable"
target = "tests.crash.remote_sink:send"
"""


@dataclass
class Fleet:
    """Workers of the tube `items`, by number, and the file that they write."""

    dsn: str
    folder: Path
    kafka: str | None = None
    """Bootstrap servers; without them the election is by lease."""
    session_timeout: float = 6.0
    receive_deadline: float = 2.0
    request_timeout: float = 3.0
    slow: bool = False
    """Whether the sink dawdles within each write."""
    comparing: bool = False
    """Whether the sink refuses tokens lower than the one it holds."""
    sweepable: bool = False
    """Whether the sink can be scanned, so that backfills end with a sweep."""
    collector: str | None = None
    """`host:port` of the server that the sink sends to; None: the sink writes the file itself."""
    sink_options: str | None = None
    """Another sink: the lines of its section."""
    environment: dict[str, str] = field(default_factory=dict)
    """More variables for all workers."""
    environments: dict[int, dict[str, str]] = field(default_factory=dict)
    """More variables for single workers, as other addresses in `DSN`, `KAFKA` or `COLLECTOR`."""
    processes: dict[int, Program] = field(default_factory=dict)
    _counted: Counter[str | None] = field(default_factory=Counter, init=False)
    """Lines of the sink file by the worker that wrote them."""

    def __post_init__(self) -> None:
        self._tail = Tail(self.sink)
        self._observer = Observer(self.dsn)
        if self.sweepable:
            offer_sweepable(self.folder)
        self.config.write_text(
            (CONFIG + self._sink).format(
                sink=self.sink,
                installation=f"test-{uuid4().hex[:8]}",
                election="neli" if self.kafka else "lease",
                kafka='[kafka]\nbootstrap_servers = "${KAFKA}"' if self.kafka else "",
                session_timeout=self.session_timeout,
                receive_deadline=self.receive_deadline,
                request_timeout=self.request_timeout,
            )
        )

    @property
    def _sink(self) -> str:
        if self.sink_options:
            return self.sink_options
        if self.collector:
            return COLLECTED
        if self.comparing:
            return COMPARING
        if self.sweepable:
            return SWEEPABLE
        return SLOW if self.slow else JSONL

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self._observer.close()

    @property
    def config(self) -> Path:
        return self.folder / "pytube.toml"

    @property
    def sink(self) -> Path:
        return self.folder / "sink.jsonl"

    def log(self, number: int) -> str:
        """What worker `number` said, over all its lives."""
        path = self.folder / f"worker-{number}.log"
        return path.read_text() if path.exists() else ""

    # --- workers --------------------------------------------------------------------------

    def start(self, *numbers: int) -> None:
        """Start these workers."""
        for number in numbers:
            environment = {
                **os.environ,
                "CLIENT_ID": f"worker-{number}",
                "DSN": self.dsn,
                "KAFKA": self.kafka or "",
                "COLLECTOR": self.collector or "",
                "SLOW_SINK_PATH": str(self.sink),
                COMPARING_SINK_PATH: str(self.sink),
                "PYTHONPATH": os.pathsep.join((str(ROOT), str(self.folder))),
                **self.environment,
                **self.environments.get(number, {}),
            }
            with (self.folder / f"worker-{number}.log").open("ab") as log:
                self.processes[number] = start(
                    module(environment),
                    ["--config", str(self.config), "--log-format", "json", "worker", "--tube", "items"],
                    environment=environment,
                    output=log,
                )

    def signal(self, number: int, which: signal.Signals) -> None:
        """Send a signal to one worker."""
        self.processes[number].send_signal(which)

    def kill(self, number: int) -> None:
        """SIGKILL, and wait until it is gone."""
        self.processes[number].kill()
        self.processes[number].wait()

    def terminate(self, *numbers: int) -> list[int]:
        """SIGTERM to these, or all that live; their exit codes."""
        chosen = numbers or tuple(n for n, p in self.processes.items() if p.poll() is None)
        for number in chosen:
            self.processes[number].terminate()
        return [self.processes[number].wait(timeout=30) for number in chosen]

    # --- what there is to see -------------------------------------------------------------

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask the database."""
        return self._observer.rows(statement)

    def change(self, *statements: str) -> None:
        """Run statements, each of which must run once; each is a transaction."""
        with open_session(self.dsn) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def look_anew(self) -> None:
        """Have the next query go to the server that the DSN leads to now."""
        self._observer.close()

    def leaders(self) -> dict[int, int]:
        """Worker numbers by partition, for partitions that are led."""
        rows = self.query(
            "SELECT partition, client_id FROM tube_leaders('items') WHERE leader_id IS NOT NULL"
        )
        return {partition: int(client.removeprefix("worker-")) for partition, client in rows}

    def wait_for_leaders(self, numbers: set[int], partitions: int = 4, timeout: float = LIMIT) -> None:
        """Until all partitions are led, by exactly these workers, who share them evenly: then it stays so."""

        def settled() -> bool:
            leaders = self.leaders()
            shares = Counter(leaders.values())
            even = max(shares.values(), default=0) - min(shares.values(), default=0) <= 1
            return len(leaders) == partitions and set(shares) == numbers and even

        self.wait_until(settled, f"{partitions} partitions led by {sorted(numbers)}", timeout)

    def sink_lines(self, number: int | None = None) -> int:
        """Lines in the sink file: all, or those of one worker."""
        for raw in self._tail.lines():
            line = parse(raw)
            self._counted[line.client if line else None] += 1
        return self._counted.total() if number is None else self._counted[f"worker-{number}"]

    def wait_until_drained(self) -> None:
        """Until no pod waits."""
        self.wait_until(lambda: self.query("SELECT count(*) FROM tube.items") == [(0,)], "the tube is empty")

    def wait_until(self, predicate: Callable[[], object], what: str, timeout: float = LIMIT) -> None:
        """Until `predicate` is true; else fail with what the workers said last."""
        wait_until(predicate, timeout, lambda: f"{what}\n{self.last_words()}")

    def last_words(self) -> str:
        """The ends of all logs: what one needs to see when a test fails."""
        return "\n".join(
            f"--- worker {number}:\n" + "\n".join(self.log(number).splitlines()[-12:])
            for number in self.processes
        )

    def judge(self) -> Verdict:
        """What the judge says."""
        return judge(self.dsn, str(self.sink))

    def events(self, number: int, name: str) -> Iterator[dict[str, Any]]:
        """The events of that name in a worker's log, of whose last line only a part may be written yet."""
        for line in self.log(number).split("\n")[:-1]:
            if line.startswith("{"):
                entry = json.loads(line)
                if entry.get("event") == name:
                    yield entry
