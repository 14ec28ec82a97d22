"""librdkafka's mock of a Kafka cluster, as a process of its own.

It serves producers, consumers and classic consumer groups of any process over loopback. Topics are
made when first named, with 4 partitions; CreateTopics is not known to it. All is in memory.

Its groups are slower than a broker's: the first member waits 3 seconds (so a session timeout below
that never gets a partition), and each later rebalance takes a second less than the session timeout,
twice of that with a cooperative strategy.

Run as `python -m pytube.embedded.kafka_mock [BROKERS]`, it prints its bootstrap servers as one
line, and ends when its standard input does.
"""

from __future__ import annotations

import selectors
import subprocess
import sys
from types import TracebackType
from typing import Self

from pytube.embedded.process import EmbeddedError

PARTITIONS = 4
"""Of every topic."""

START_TIMEOUT = 30.0
STOP_TIMEOUT = 10.0
METADATA_TIMEOUT = 10.0


class MockKafka:
    """A mock cluster; it ends with this process."""

    def __init__(self, brokers: int = 1) -> None:
        """Nothing runs before `start`."""
        self._brokers = brokers
        self._process: subprocess.Popen[str] | None = None
        self._bootstrap: str | None = None

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers; `EmbeddedError` when it does not run."""
        if self._bootstrap is None:
            message = "the mock of Kafka does not run: call start first"
            raise EmbeddedError(message)
        return self._bootstrap

    def start(self) -> Self:
        """Start and wait until it serves; every start makes an empty cluster on new ports."""
        if self._process is not None:
            return self
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self._brokers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        line = self._first_line(self._process)
        if not line:
            self._process.kill()
            _, errors = self._process.communicate()
            self._process = None
            message = f"the mock of Kafka did not start within {START_TIMEOUT:g} s: {errors.strip()}"
            raise EmbeddedError(message)
        self._bootstrap = line
        return self

    def stop(self) -> None:
        """End the cluster; what was in it is gone."""
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._process = None
        self._bootstrap = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @staticmethod
    def _first_line(process: subprocess.Popen[str]) -> str:
        if process.stdout is None:
            return ""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(START_TIMEOUT):
                return ""
        return process.stdout.readline().strip()


def serve(brokers: int) -> None:
    """Be the cluster: print the bootstrap servers, and return when standard input ends."""
    from confluent_kafka import Producer

    # The cluster lives in a producer, which is given it instead of its bootstrap servers.
    host = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": brokers, "log_level": 3})
    found = host.list_topics(timeout=METADATA_TIMEOUT).brokers.values()
    sys.stdout.write(",".join(f"{broker.host}:{broker.port}" for broker in found) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
