"""What happens in a demonstration, in order, and how it ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psycopg

from pytube import logs
from pytube.demo.copies import check, running
from pytube.demo.feeds import Feed, FileFeed, ServerFeed
from pytube.demo.processes import Servers, Workers, running_servers
from pytube.demo.report import Findings, Takeover, compare, latencies, report, summary
from pytube.demo.settings import (
    PARTITIONS,
    TUBE,
    WORKERS,
    Broker,
    Election,
    Folder,
    SinkType,
    worker_settings,
)
from pytube.demo.source import ACCOUNT_SHARDS, CLIENTS, RATE, TELLER_SHARD, Load, Probe, Source
from pytube.demo.watch import Screen, Watch
from pytube.errors import PytubeError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Seconds; a demonstration that is well comes near none of them.
_LEAD_LIMIT = 120.0
_FILL_LIMIT = 240.0
_TAKEOVER_LIMIT = 120.0
_DRAIN_LIMIT = 60.0


class _Interrupted(BaseException):
    """A signal asked the demonstration to end. As KeyboardInterrupt, it is no error of anybody's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(*, kafka: Broker, election: Election, sink: SinkType, seconds: float, directory: Path | None) -> int:
    """See `pytube.demo.main`."""
    check(sink)
    broker: Broker | None = kafka if election == "neli" else None
    if sink == "kafka":
        broker = "real"
    return on_stage(directory, lambda folder, screen: _run(folder, broker, election, sink, seconds, screen))


def on_stage(directory: Path | None, play: Callable[[Folder, Screen], int]) -> int:
    """Give a demonstration its folder and its screen, and an end with a sentence; the exit code.

    Args:
        directory: of the folder; None: the default.
        play: what happens; all that it starts is ended when it returns or raises. It returns the exit code.
    """
    screen = Screen()
    try:
        with _interruptible(), Folder(directory) as folder, (folder.path / "demo.log").open("a") as log:
            # The logs of our own code in this process are not for the spectators.
            logs.configure("info", "human", log)
            try:
                return play(folder, screen)
            except (PytubeError, psycopg.Error, OSError) as error:
                screen.line("")
                screen.line(f"FAILED: {error}", "bold red")
                screen.line(f"All processes are ended; their logs are kept in {folder.path}")
                return 1
    except _Interrupted as interrupted:
        name = signal.Signals(interrupted.number).name
        screen.line("")
        screen.step(f"ended by {name}; all that was started is ended")
        return 128 + interrupted.number


def _run(
    folder: Folder,
    broker: Broker | None,
    election: Election,
    sink: SinkType,
    seconds: float,
    screen: Screen,
) -> int:
    began = time.time()
    with ExitStack() as stack:
        servers = stack.enter_context(running_servers(folder.path, broker))
        screen.step(f"{servers.names}; election: {election}")
        feed: Feed = FileFeed(folder.path / "sink.jsonl")
        if sink != "jsonl":
            copy = stack.enter_context(running(sink, folder.path, servers.bootstrap))
            screen.step(f"the copy is in {copy.name}")
            feed = ServerFeed(copy, folder.path)
        found = Story(folder, servers, election, feed, screen, stack).play(seconds)
        screen.step("done")
    return report(found, began=began, directory=folder.path, screen=screen)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise `_Interrupted` where the program is when one of the signals comes, so that all is ended; once.

    Later signals are ignored: the end is under way, and it is short. Outside of the main thread,
    where Python receives no signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal heard
        if not heard:
            heard = True
            raise _Interrupted(number)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class _Kill:
    """A leader that was killed."""

    victim: str
    at: float
    """Unix time."""
    epochs: dict[int, int]
    """Its terms, by partition."""


class Story:
    """One demonstration. What it starts is ended when the stack that it is given is closed."""

    def __init__(
        self,
        folder: Folder,
        servers: Servers,
        election: Election,
        feed: Feed,
        screen: Screen,
        stack: ExitStack,
    ) -> None:
        """Make the source and the configurations.

        Args:
            folder: where everything goes.
            servers: they run.
            election: of the workers.
            feed: of the copy.
            screen: receives what happens.
            stack: receives what is to be ended.
        """
        self._screen = screen
        self._stack = stack
        self._pgbench = servers.postgres.bin("pgbench")
        self._load_log = folder.path / "pgbench.log"
        self._source = Source(servers.dsn, self._pgbench, folder.path / "pgbench-init.log")
        stack.callback(self._source.close)
        self._workers = Workers(
            folder,
            settings=lambda name: worker_settings(
                name,
                dsn=servers.dsn,
                bootstrap=servers.bootstrap if election == "neli" else None,
                election=election,
                sink=feed.settings(name),
            ),
            log_format=feed.log_format,
        )
        stack.callback(self._workers.close)
        self._feed = feed
        self._watch = Watch(self._source, feed.poll, lambda: feed.tally.documents, screen)
        self._watch.checks.append(self._workers.check)
        self._probe = Probe(servers.dsn)
        stack.callback(self._probe.close)

    def play(self, seconds: float) -> Findings:
        """Everything, with load for `seconds` or as long as the take-over needs."""
        self._prepare()
        self._begin()
        load = self._start_load()
        begun = time.monotonic()
        self._load_until(begun + seconds / 2)
        kill = self._kill()
        self._see_takeover(kill)
        self._restart(kill)
        self._load_until(max(begun + seconds, time.monotonic() + seconds / 8))
        transactions = self._stop_load(load)
        lasted = time.monotonic() - begun
        self._drain()
        return self._judge(kill, transactions, lasted)

    # --- the acts -------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._source.attach()
        self._screen.step(f"our SQL is installed; the tube {TUBE} has {PARTITIONS} partitions")
        self._screen.step(
            f"attached: pgbench_accounts over {ACCOUNT_SHARDS} shards, tellers and branches in one each"
        )
        self._source.fill()
        self._screen.step(f"pgbench has filled its tables: {self._source.rows:,} rows, all touched")

    def _begin(self) -> None:
        for name in WORKERS:
            self._workers.start(name)
        self._screen.step(f"three workers start: {', '.join(WORKERS)}")
        self._watch.until(
            lambda: self._led() == set(range(PARTITIONS)) and self._leading() == set(WORKERS),
            limit=_LEAD_LIMIT,
            missing="the three workers had not shared the four partitions among them",
        )
        self._screen.step("every partition is led, and every worker leads")
        self._watch.until(
            lambda: self._watch.caught_up and not self._source.figures().pods,
            limit=_FILL_LIMIT,
            missing="the rows that pgbench had filled in were not all delivered",
        )
        self._screen.step("all rows are delivered; from here on it is live")

    def _start_load(self) -> Load:
        load = Load(self._pgbench, self._source.dsn, self._load_log)
        self._stack.callback(load.close)
        self._probe.start()
        self._watch.checks += [load.check, self._probe.check]
        self._screen.step(
            f"the load starts: {CLIENTS} clients of pgbench, {RATE} transactions per second, and a probe"
        )
        return load

    def _load_until(self, moment: float) -> None:
        self._watch.until(
            lambda: time.monotonic() >= moment,
            limit=max(0.0, moment - time.monotonic()) + 10,
            missing="the clock did not go on",
        )

    def _kill(self) -> _Kill:
        leaders = self._source.leaders()
        # The one that the probe's row depends on, so that the take-over shows in the latencies.
        victim = next(leader.client for leader in leaders if leader.partition == TELLER_SHARD % PARTITIONS)
        epochs = {leader.partition: leader.epoch for leader in leaders if leader.client == victim}
        at = time.time()
        self._workers.kill(victim)
        self._watch.dead.add(victim)
        led = " and ".join(str(partition) for partition in epochs)
        self._screen.step(f"SIGKILL: {victim}, which led {led}, is gone", "bold red")
        return _Kill(victim, at, epochs)

    def _see_takeover(self, kill: _Kill) -> None:
        tally = self._feed.tally
        self._watch.until(
            lambda: all(tally.first_after(p, epoch) is not None for p, epoch in kill.epochs.items()),
            limit=_TAKEOVER_LIMIT,
            missing=f"the others had not taken over what {kill.victim} led and delivered from there",
        )
        self._screen.step(f"the others have taken over what {kill.victim} led", "bold green")

    def _restart(self, kill: _Kill) -> None:
        self._workers.start(kill.victim)
        self._watch.dead.discard(kill.victim)
        self._screen.step(f"{kill.victim} is started again", "bold green")
        old = max(kill.epochs.values())
        self._watch.until(
            lambda: any(x.client == kill.victim and x.epoch > old for x in self._source.leaders()),
            limit=_LEAD_LIMIT,
            missing=f"{kill.victim}, started again, did not lead",
        )
        self._screen.step(f"{kill.victim} leads again", "bold green")

    def _stop_load(self, load: Load) -> int:
        self._watch.checks = [self._workers.check]
        transactions = load.finish()
        self._probe.close()
        self._probe.check()
        self._screen.step("the load is over; what waits is delivered")
        return transactions

    def _drain(self) -> None:
        self._watch.until(
            lambda: not self._source.figures().pods,
            limit=_DRAIN_LIMIT,
            missing="the tube was not drained",
        )
        self._screen.step("the tube is empty; the workers are stopped, and every row is compared")

    # --- what came of it ------------------------------------------------------------------

    def _judge(self, kill: _Kill, transactions: int, lasted: float) -> Findings:
        exits = self._workers.stop()
        while self._feed.poll():
            pass  # what came in the end
        tally = self._feed.tally
        commits = self._probe.commits
        sample = latencies(commits, tally.arrivals)
        before = [took for commit, took in zip(commits, sample, strict=False) if commit.at + took < kill.at]
        return Findings(
            comparison=compare(self._source.documents(), self._feed.documents()),
            transactions=transactions,
            load_seconds=lasted,
            touches=self._source.figures().touches,
            documents=tally.documents,
            peak=tally.peak,
            remarks=self._feed.remarks(),
            parked=self._source.parked(),
            terms=self._source.terms(),
            takeover=self._takeover(kill),
            before=summary(before),
            overall=summary(sample),
            unseen=len(commits) - len(sample),
            delivered=tally.by_client,
            exits=exits,
        )

    def _takeover(self, kill: _Kill) -> Takeover:
        seconds = {}
        for partition, epoch in kill.epochs.items():
            first = self._feed.tally.first_after(partition, epoch)
            assert first is not None, "the take-over was seen"
            seconds[partition] = first - kill.at
        return Takeover(kill.victim, seconds)

    def _led(self) -> set[int]:
        return {leader.partition for leader in self._source.leaders()}

    def _leading(self) -> set[str]:
        return {leader.client for leader in self._source.leaders()}
