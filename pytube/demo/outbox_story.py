"""The demonstration of an outbox: an application, workers, one that is killed, and a consumer that checks."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from pytube.db.install import install
from pytube.demo.orders import KEYS, MOST, OUTBOX, RATE, ROLLED_BACK, TOPIC, Checker, Orders, Reader
from pytube.demo.processes import Servers, Workers, running_servers
from pytube.demo.report import Takeover, summary
from pytube.demo.settings import PARTITIONS, WORKERS, Broker, Election, Folder, outbox_settings
from pytube.demo.story import on_stage
from pytube.demo.watch import Screen, Watch

# Seconds; a demonstration that is well comes near none of them.
_LEAD_LIMIT = 120.0
_TAKEOVER_LIMIT = 60.0
_DRAIN_LIMIT = 60.0

_HEADER = "   time  written   arrived  per s  waiting     lag  who leads which partitions"


def run(*, kafka: Broker, election: Election, seconds: float, directory: Path | None) -> int:
    """See `pytube.demo.main`. A broker there is in any case."""

    def play(folder: Folder, screen: Screen) -> int:
        with ExitStack() as stack:
            servers = stack.enter_context(running_servers(folder.path, kafka))
            screen.step(f"{servers.names}; election: {election}")
            story = OutboxStory(folder, servers, election, screen, stack, makes_topic=kafka == "real")
            return story.play(seconds)

    return on_stage(directory, play)


class OutboxStory:
    """One demonstration. What it starts is ended when the stack that it is given is closed."""

    def __init__(
        self,
        folder: Folder,
        servers: Servers,
        election: Election,
        screen: Screen,
        stack: ExitStack,
        *,
        makes_topic: bool,
    ) -> None:
        """Make the outbox and the configurations; `makes_topic`: the broker has to be told of the topic."""
        self._screen, self._directory = screen, folder.path
        install(servers.dsn)
        self._orders = Orders(servers.dsn)
        stack.callback(self._orders.close)
        self._orders.make()
        bootstrap = servers.bootstrap
        assert bootstrap is not None, "an outbox needs a broker"
        self._workers = Workers(
            folder,
            settings=lambda name: outbox_settings(
                name, dsn=servers.dsn, bootstrap=bootstrap, election=election, outbox=OUTBOX
            ),
            serves=("--outbox", OUTBOX),
        )
        stack.callback(self._workers.close)
        self._checker = Checker()
        self._reader = Reader(bootstrap, self._checker, makes_topic=makes_topic)
        stack.callback(self._reader.close)
        self._watch = Watch(self._orders, self._reader.poll, lambda: self._checker.arrived, screen, _HEADER)
        self._watch.checks += [self._workers.check, self._orders.check]

    def play(self, seconds: float) -> int:
        """Everything, with load for `seconds` or as long as the take-over needs; the exit code."""
        screen, watch = self._screen, self._watch
        screen.step(f"our SQL is installed; the outbox {OUTBOX} has {PARTITIONS} partitions")
        for name in WORKERS:
            self._workers.start(name)
        screen.step(f"three workers start: {', '.join(WORKERS)}")
        watch.until(
            lambda: {leader.partition for leader in self._orders.leaders()} == set(range(PARTITIONS)),
            limit=_LEAD_LIMIT,
            missing="the workers had not taken all partitions",
        )
        self._orders.start()
        screen.step(
            f"the application starts: {RATE} transactions per second, of 1 to {MOST} messages for {TOPIC} "
            f"over {KEYS} keys; one of {ROLLED_BACK} is rolled back"
        )
        begun = time.monotonic()
        self._load_until(begun + seconds / 2)
        killed_at, takeover = self._kill()
        self._load_until(max(begun + seconds, time.monotonic() + seconds / 8))
        self._orders.finish()
        self._orders.check()
        lasted = time.monotonic() - begun
        screen.step("the application is stopped; what waits is delivered")
        watch.until(
            lambda: not self._orders.figures().pods,
            limit=_DRAIN_LIMIT,
            missing="the outbox was not drained",
        )
        watch.checks = []
        exits = self._workers.stop()
        self._reader.finish()
        return self._report(killed_at, takeover, lasted, exits)

    def _load_until(self, moment: float) -> None:
        self._watch.until(
            lambda: time.monotonic() >= moment,
            limit=max(0.0, moment - time.monotonic()) + 10,
            missing="the clock did not go on",
        )

    def _kill(self) -> tuple[float, Takeover]:
        """SIGKILL a leader, see others take over, and start it again; when it was, and how long that took."""
        leaders = self._orders.leaders()
        victim = leaders[0].client
        epochs = {leader.partition: leader.epoch for leader in leaders if leader.client == victim}
        at = time.time()
        self._workers.kill(victim)
        self._watch.dead.add(victim)
        led = " and ".join(str(partition) for partition in epochs)
        self._screen.step(f"SIGKILL: {victim}, which led {led}, is gone", "bold red")
        self._watch.until(
            lambda: all(self._checker.first_after(p, epoch) is not None for p, epoch in epochs.items()),
            limit=_TAKEOVER_LIMIT,
            missing=f"the others had not taken over what {victim} led and delivered from there",
        )
        self._screen.step(f"the others have taken over what {victim} led", "bold green")
        self._workers.start(victim)
        self._watch.dead.discard(victim)
        self._screen.step(f"{victim} is started again", "bold green")
        old = max(epochs.values())
        self._watch.until(
            lambda: any(one.client == victim and one.epoch > old for one in self._orders.leaders()),
            limit=_LEAD_LIMIT,
            missing=f"{victim}, started again, did not lead",
        )
        self._screen.step(f"{victim} leads again", "bold green")
        firsts = {
            partition: self._checker.first_after(partition, epoch) for partition, epoch in epochs.items()
        }
        return at, Takeover(victim, {p: first - at for p, first in firsts.items() if first is not None})

    def _report(self, killed_at: float, takeover: Takeover, lasted: float, exits: dict[str, int]) -> int:
        orders, checker, screen = self._orders, self._checker, self._screen
        before = summary([took for at, took in checker.latencies if at < killed_at])
        overall = summary([took for _, took in checker.latencies])
        screen.heading("What was seen")
        screen.facts(
            {
                "transactions": f"{orders.transactions:,} in {lasted:.0f} s, {orders.rolled_back:,} of them "
                "rolled back",
                "records": f"{orders.committed.total():,} committed, over {len(orders.committed):,} keys",
                "consumer": f"{checker.arrived:,} came, and {checker.repeats:,} of them again",
                "take-over": str(takeover),
                "latency before the kill": _latency(before.p50, before.p99),
                "latency overall": _latency(overall.p50, overall.p99),
            }
        )
        screen.line("")
        wrong = [*checker.wrong, *checker.missing(orders.committed), *self._troubles(exits)]
        for text in wrong[:10]:
            screen.line(f"WRONG: {text}", "bold red")
        if not wrong:
            screen.line(
                f"COMPLETE AND IN ORDER: all {checker.arrived:,} committed records came to the consumer, "
                "those of each key in order, and nothing that was rolled back.",
                "bold green",
            )
        screen.line(f"Data and logs are kept in {self._directory}", "dim")
        return 1 if wrong else 0

    def _troubles(self, exits: dict[str, int]) -> list[str]:
        """What else was not as it should be."""
        result = [
            f"the worker {name} ended with {code} after SIGTERM, not with 0"
            for name, code in exits.items()
            if code
        ]
        if parked := self._orders.parked():
            result.append(f"{parked:,} records were set aside with an error")
        if not self._checker.arrived:
            result.append("no record came, so nothing was checked")
        return result


def _latency(p50: float, p99: float) -> str:
    return f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms from INSERT to consumer"
