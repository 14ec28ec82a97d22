"""librdkafka's mock of a Kafka cluster, as a separate process.

It serves producers, consumers and classic consumer groups of any process over loopback. Topics are
made when first named, with 4 partitions; CreateTopics is not known to it. All is in memory.

Its groups are slower than a broker's: the first member waits 3 seconds (so a session timeout below
that never gets a partition), and each later rebalance takes a second less than the session timeout,
twice of that with a cooperative strategy.

Run as `python -m pytube.embedded.kafka_mock BROKERS FILE`, it writes its bootstrap servers as one line to the
file, and runs until it is ended.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from pytube.embedded.process import EmbeddedError, EmbeddedServer

PARTITIONS = 4
"""Of every topic."""

METADATA_TIMEOUT = 10.0


class MockKafka(EmbeddedServer):
    """A mock cluster: an empty one, on new ports, at every start. It ends with this process."""

    NAME = "mock-of-Kafka"
    START_TIMEOUT = 30.0

    def __init__(self, directory: Path | str, brokers: int = 1) -> None:
        """Nothing runs before `start`. The directory, for its log, is made if it is missing."""
        super().__init__(directory)
        self._brokers = brokers
        self._address = self.directory / "bootstrap"

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers; `EmbeddedError` when it does not run."""
        if not self.running:
            raise EmbeddedError("the mock of Kafka does not run: call start first")
        return self._address.read_text().strip()

    def _prepare(self) -> list[str]:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._address.unlink(missing_ok=True)
        return [sys.executable, "-m", __name__, str(self._brokers), str(self._address)]

    def _serves(self) -> bool:
        return self._address.exists() and self._address.read_text().endswith("\n")


def serve(brokers: int, address: Path) -> None:
    """Be the cluster."""
    from confluent_kafka import Producer

    # The cluster lives in a producer, which is given it instead of its bootstrap servers.
    host = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": brokers, "log_level": 3})
    found = host.list_topics(timeout=METADATA_TIMEOUT).brokers.values()
    address.write_text(",".join(f"{broker.host}:{broker.port}" for broker in found) + "\n")
    signal.pause()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
