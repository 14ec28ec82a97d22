"""The crew: worker processes, as an operator runs them, and what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import psutil

from pytube.outbox.messages import OVERDUE
from tests.crash.chaos.arena import Arena
from tests.crash.chaos.invariants import Invariant, Violation
from tests.crash.chaos.log import Log, is_grave, moment_of
from tests.crash.chaos.outboxes import OUTBOXES
from tests.crash.chaos.sink import CLIENT, FOLDER, REQUEST_TIMEOUT
from tests.crash.chaos.source import BY_ELECTION, TUBES
from tests.helpers.armed import VARIABLE, module
from tests.helpers.database import ROOT

SESSION_TIMEOUT = 6.0
RECEIVE_DEADLINE = 2.0
DRAIN_LIMIT = 4.0
END_LIMIT = 40.0
"""Seconds within which a worker ends that was asked to, whatever is down."""

NOT_AVAILABLE = 3
"""The exit code of a worker that finds Postgres or Kafka down when it starts."""
START_LIMIT = 90.0
"""Seconds that a worker may take to start."""

MEMBERS = {"neli-1": "neli", "neli-2": "neli", "neli-3": "neli", "lease-1": "lease", "lease-2": "lease"}
NAMES = (*(tube.name for tube in TUBES), *(outbox.name for outbox in OUTBOXES))
"""Of all that workers lead partitions of."""
ELDERS = ("neli-1", "lease-1")
"""Never restarted, whatever else happens to them: they would show a leak."""


def configuration(installation: str, election: str) -> str:
    """The file of the workers under one election."""
    outboxes = "".join(outbox.settings for outbox in OUTBOXES if outbox.election == election)
    tube = BY_ELECTION[election].name
    return f"""
[postgres]
dsn = "${{WORKER_DSN}}"

[worker]
installation = "{installation}"
client_id = "${{{CLIENT}}}"
election = "{election}"
session_timeout = {SESSION_TIMEOUT}
receive_deadline = {RECEIVE_DEADLINE}
drain_limit = {DRAIN_LIMIT}
meter_interval = 5.0

[kafka]
bootstrap_servers = "${{WORKER_KAFKA}}"

[tube.{tube}]
keys_in_flight = 5000
mark_limit = 200

[tube.{tube}.sink]
type = "callable"
target = "tests.crash.chaos.sink:send"
concurrency = 8
request_timeout = {REQUEST_TIMEOUT}
batch_documents = 100
sends = 2
{outboxes}
"""


@dataclass
class Member:
    """One worker over all its lives."""

    name: str
    election: str
    log: Log
    """What it said, over all its lives."""
    process: subprocess.Popen[bytes] | None = None
    excused: bool = False
    """Whether it may end, or fail, by itself: a fault has seen to that."""
    started: float = 0.0
    has_led: bool = False
    """Whether it has led anything in this life, so that it had come up."""

    @property
    def listens(self) -> bool:
        """Whether SIGTERM would end it in order: it has come so far as to ask for that."""
        return self.process is not None and self.lives and _catches(self.process.pid, signal.SIGTERM)

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP has got it."""
        return self.process is not None and self.lives and _state(self.process.pid) == "T"


def _catches(pid: int, which: signal.Signals) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(mask, 16) >> (which - 1) & 1)


def _state(pid: int) -> str:
    try:
        # The state follows the name of the program, which is in parentheses.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


@dataclass
class Crew:
    """All workers of a run."""

    arena: Arena
    members: dict[str, Member] = field(default_factory=dict)
    told: dict[str, dict[str, float]] = field(default_factory=dict)
    """By tube and outbox: when a worker said that it had begun which term."""
    overdue: set[str] = field(default_factory=set)
    """Outboxes of which a worker has said that the broker did not answer in time."""
    starts: int = 0
    _wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        installation = f"chaos-{uuid4().hex[:8]}"
        for election in BY_ELECTION:
            self._config(election).write_text(configuration(installation, election))
        self.told = {name: {} for name in NAMES}
        self.members = {
            name: Member(name, election, Log(self.arena.folder / f"{name}.log"))
            for name, election in MEMBERS.items()
        }

    def _config(self, election: str) -> Path:
        return self.arena.folder / f"{election}.toml"

    def start(self, name: str, fault: str | None = None) -> None:
        """Start a worker; `fault` as `PYTUBE_FAULT` has it."""
        member = self.members[name]
        self._hear(member)  # what its last life said is judged by what befell that one
        member.excused = fault is not None
        member.has_led = False
        environment = {
            **os.environ,
            **self.arena.environment(name),
            CLIENT: name,
            FOLDER: str(self.arena.journals),
            "PYTHONPATH": str(ROOT),
        }
        environment.pop(VARIABLE, None)
        if fault is not None:
            environment[VARIABLE] = fault
        with member.log.path.open("ab") as log:
            member.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", module(environment)),
                    *("--config", str(self._config(member.election)), "--log-format", "json", "worker"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        member.started = time.monotonic()
        self.starts += 1

    def signal(self, name: str, which: signal.Signals) -> None:
        """Send a signal to a worker, if it lives."""
        process = self.members[name].process
        if process is not None and process.poll() is None:
            process.send_signal(which)

    def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        member = self.members[name]
        member.excused = True
        self.signal(name, signal.SIGKILL)
        if member.process is not None:
            member.process.wait()

    def close(self) -> None:
        """Kill all."""
        for name in self.members:
            self.kill(name)

    def memory(self) -> dict[str, float]:
        """MiB that each living worker has in memory."""
        return {
            member.name: psutil.Process(member.process.pid).memory_info().rss / 2**20
            for member in self.members.values()
            if member.process is not None and member.lives
        }

    # --- what they say --------------------------------------------------------------------

    def look(self) -> list[Violation]:
        """Read what the logs have new; what is wrong with the workers."""
        for member in self.members.values():
            self._hear(member)
            if member.process is not None and not member.lives and not member.excused:
                self._ended(member)
        found, self._wrong = self._wrong, []
        return [Violation(Invariant.LIVING, what) for what in found]

    def _hear(self, member: Member) -> None:
        for entry in member.log.news():
            if entry.get("event") == "leader_acquired":
                member.has_led = True
                self.told[entry["tube"]][entry["leader_id"]] = moment_of(entry)
            if OVERDUE.reason in json.dumps(entry):
                self.overdue.add(entry.get("tube", ""))
            if is_grave(entry) and not member.excused:
                self._wrong.append(f"{member.name} said {json.dumps(entry)[:2000]}")

    def _ended(self, member: Member) -> None:
        """By itself: a fault, unless it found a server down as it started."""
        code = member.process.returncode if member.process is not None else None
        if code == NOT_AVAILABLE and self._never_came_up(member):
            self.start(member.name)  # as an operator's supervisor does
            return
        self._wrong.append(f"{member.name} ended with {code}: {member.log.tail()}")
        member.excused = True

    @staticmethod
    def _never_came_up(member: Member) -> bool:
        return not member.has_led and time.monotonic() - member.started < START_LIMIT
