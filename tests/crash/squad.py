"""The squad: many workers at once, each with a tube and a fault of its own, and one that rescues all.

So all fault points are passed in the time of one. Each tube has one partition and one table, whose
name is the tube's.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import psycopg
from psycopg import sql

from pytube.faults import Point
from tests.crash.journal import check
from tests.crash.journal_sink import CLIENT, FOLDER, accepted
from tests.helpers.armed import VARIABLE, Action, module
from tests.helpers.database import ROOT
from tests.helpers.forked import Program, start
from tests.helpers.observer import Observer
from tests.helpers.waiting import wait_until

ROWS = 600
PATIENCE_AT_THE_END = 30

RESCUER = "rescuer"
AT_THE_END = {
    Point.ON_REVOKE,
    Point.DURING_DRAIN,
    Point.BEFORE_RESET,
    Point.BEFORE_RELEASE,
    Point.AFTER_RELEASE,
}
"""Points that a worker comes to when it is asked to end."""

_CONFIG = """
[postgres]
dsn = "{dsn}"

[worker]
installation = "{installation}"
client_id = "${{CLIENT_ID}}"
election = "{election}"
session_timeout = 6.0
receive_deadline = 2.0
drain_limit = 3.0
meter_interval = 1.0
{kafka}
"""
_TUBE = """
[tube.{tube}]
mark_limit = 20
[tube.{tube}.sink]
type = "callable"
target = "tests.crash.journal_sink:send"
request_timeout = 1.5
batch_documents = 100
sends = 2
"""


class Writer:
    """One session that changes all tables in turn, by single rows or by many at once."""

    def __init__(self, dsn: str, tables: list[str], sizes: tuple[int, ...], pause: float) -> None:
        """`sizes`: how many ids the pods have; `pause`: seconds from one change of all tables to the next."""
        self._dsn = dsn
        self._tables = tables
        self._sizes = sizes
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        draw = random.Random(0)
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._stop.is_set():
                for table in self._tables:
                    self._change(connection, sql.Identifier(table), draw)
                self._stop.wait(self._pause)

    def _change(
        self, connection: psycopg.Connection[Any], table: sql.Identifier, draw: random.Random
    ) -> None:
        size = draw.choice(self._sizes)
        first = draw.randint(1, ROWS - size + 1)
        kind = draw.random()
        if kind < 0.1:
            change = "DELETE FROM {} WHERE id BETWEEN %s AND %s"
        elif kind < 0.3:
            change = (
                "INSERT INTO {} SELECT g, 1 FROM generate_series(%s::bigint, %s) g "
                "ON CONFLICT (id) DO UPDATE SET n = excluded.n + 1"
            )
        else:
            change = "UPDATE {} SET n = n + 1 WHERE id BETWEEN %s AND %s"
        connection.execute(sql.SQL(change).format(table), (first, first + size - 1))


class Squad:
    """Workers by name: one for each point, of the tube that is named after it, and the rescuer."""

    def __init__(
        self, dsn: str, folder: Path, points: list[Point], action: Action, kafka: str | None, nth: int
    ) -> None:
        """`nth`: which pass of a point acts, of those that are passed again and again."""
        self.tubes = [f"p_{point}" for point in points]
        self._dsn = dsn
        self._observer = Observer(dsn)
        self._folder = folder
        self._faults = {f"p_{point}": (point, action, self._nth(point, nth)) for point in points}
        self._processes: dict[str, Program] = {}
        self._asked_to_end: set[str] = set()
        """Asked twice, a worker would end at once, and not in order."""
        self._make_tables()
        self._config = folder / "pytube.toml"
        self._config.write_text(
            _CONFIG.format(
                dsn=dsn,
                installation=f"test-{uuid4().hex[:8]}",
                election="neli" if kafka else "lease",
                kafka=f'[kafka]\nbootstrap_servers = "{kafka}"' if kafka else "",
            )
            + "".join(_TUBE.format(tube=tube) for tube in self.tubes)
        )

    @staticmethod
    def _nth(point: Point, nth: int) -> int:
        return 1 if point in AT_THE_END or point is Point.AFTER_ACQUIRE else nth

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self._observer.close()

    def _make_tables(self) -> None:
        options = "-c search_path=tube,public"
        with psycopg.connect(self._dsn, autocommit=True, options=options) as connection:
            for tube in self.tubes:
                table = sql.Identifier("public", tube)
                connection.execute(
                    sql.SQL("CREATE TABLE {} (id bigint PRIMARY KEY, n bigint NOT NULL)").format(table)
                )
                connection.execute("SELECT tube_ensure_exists(%s)", (tube,))
                connection.execute("SELECT tube_table_ensure_attached(%s, %s, 0)", (tube, f"public.{tube}"))

    # --- its course -----------------------------------------------------------------------

    def start_victims(self) -> None:
        """Start them; those whose fault is at the end are asked to end as soon as they deliver."""
        for tube in self.tubes:
            self._start(tube, tube)
        for tube in self.tubes:
            point, _, _ = self._faults[tube]
            if point in AT_THE_END:
                self.wait_for_lines(tube, 1)
                self._processes[tube].terminate()
                self._asked_to_end.add(tube)

    def wait_until_all_are_struck(self) -> None:
        """Until each fault has happened."""
        for tube in self.tubes:
            wait_until(
                lambda: self._is_struck(tube),  # noqa: B023 # called at once
                what=lambda: f"the fault of {tube}\n{self._words(tube)}",  # noqa: B023
            )

    def _is_struck(self, tube: str) -> bool:
        process = self._processes[tube]
        _, action, _ = self._faults[tube]
        if action is Action.KILL:
            code = process.poll()
            assert code in (None, -signal.SIGKILL), f"{tube} ended by itself\n{self._words(tube)}"
            return code is not None
        assert process.poll() is None, f"{tube} ended by itself\n{self._words(tube)}"
        # The state follows the name of the program, which is in parentheses.
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def rescue(self) -> None:
        """Another worker takes all tubes over, and delivers from each."""
        lines = {tube: self._lines(tube) for tube in self.tubes}
        self._start(RESCUER, *self.tubes)
        for tube in self.tubes:
            if not self._holds_its_file(tube):
                self.wait_for_lines(tube, lines[tube] + 20)

    def _holds_its_file(self, tube: str) -> bool:
        """Whether a victim was stopped in the midst of a write of another thread of its own.

        Then the file is locked until it goes on, and whoever follows has to wait: a write that has
        begun can't be overtaken.
        """
        pid = str(self._processes[tube].pid)
        locks = (line.split() for line in Path("/proc/locks").read_text().splitlines())
        return any("FLOCK" in words and pid in words for words in locks)

    def resume(self) -> None:
        """Those that were stopped go on, under terms that are over."""
        before = {tube: len(self._log(tube)) for tube in self.tubes}
        for tube in self.tubes:
            self._processes[tube].send_signal(signal.SIGCONT)
        for tube in self.tubes:
            wait_until(
                lambda: len(self._log(tube)) > before[tube] or self._processes[tube].poll() == 0,  # noqa: B023
                what=lambda: f"{tube} goes on\n{self._words(tube)}",  # noqa: B023
            )

    def drain(self) -> None:
        """Until no pod waits, and all who live have ended in order."""
        for tube in self.tubes:
            wait_until(
                lambda: self._observer.rows(f"SELECT count(*) FROM tube.{tube}") == [(0,)],  # noqa: B023
                what=lambda: f"{tube} is empty\n{self._words(tube)}\n{self._words(RESCUER, tube)}",  # noqa: B023
            )
        living = [name for name, process in self._processes.items() if process.returncode is None]
        for name in living:
            if name not in self._asked_to_end:
                self._processes[name].terminate()
        for name in living:
            assert self._end_of(name) == 0, self._words(name)

    def _end_of(self, name: str) -> int:
        """The exit code of a worker that was asked to end; one that does not tells where it hangs."""
        process = self._processes[name]
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=PATIENCE_AT_THE_END)
        process.send_signal(signal.SIGABRT)
        process.wait()
        raise AssertionError(f"{name} does not end\n{self._log(name)[-20_000:]}")

    def judge(self) -> dict[str, Any]:
        """What the checker found wrong, by tube; nothing, when all is well."""
        findings = {
            tube: check(self._dsn, tube, self._folder, {*self._told(tube, tube), *self._told(RESCUER, tube)})
            for tube in self.tubes
        }
        return {tube: found for tube, found in findings.items() if not found.is_good or not found.lines}

    # --- what there is to see -------------------------------------------------------------

    def _start(self, name: str, *tubes: str) -> None:
        point, action, nth = self._faults.get(name, (None, None, None))
        environment = {
            **os.environ,
            CLIENT: name,
            FOLDER: str(self._folder),
            "PYTHONPATH": str(ROOT),
            "PYTHONFAULTHANDLER": "1",
        }
        if point is not None:
            environment[VARIABLE] = f"{point}:{action}:{nth}"
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = start(
                module(environment),
                [
                    *("--config", str(self._config), "--log-format", "json", "worker"),
                    *(word for tube in tubes for word in ("--tube", tube)),
                ],
                environment=environment,
                output=log,
            )

    def wait_for_lines(self, tube: str, count: int) -> None:
        """Until so many documents of the tube have arrived."""
        wait_until(
            lambda: self._lines(tube) >= count,
            what=lambda: f"{count} documents of {tube}\n{self._words(tube)}\n{self._words(RESCUER, tube)}",
        )

    def _lines(self, tube: str) -> int:
        path = accepted(tube, self._folder)
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def _log(self, name: str) -> str:
        path = self._folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def _words(self, name: str, tube: str = "") -> str:
        """The end of a worker's log; of what it said of one tube, when one is given."""
        lines = [line for line in self._log(name).splitlines() if tube in line]
        return f"--- {name}:\n" + "\n".join(lines[-20:])

    def _told(self, name: str, tube: str) -> set[str]:
        """The terms over a tube that a worker spoke of."""
        entries = [json.loads(line) for line in self._log(name).splitlines() if line.startswith("{")]
        return {
            entry["leader_id"]
            for entry in entries
            if entry.get("event") == "leader_acquired" and entry.get("tube") == tube
        }
