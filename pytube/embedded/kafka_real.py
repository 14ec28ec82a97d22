"""A real Kafka broker for demos and tests: one node, in a separate folder."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from pytube.embedded import java
from pytube.embedded.process import HOST, EmbeddedError, EmbeddedServer, Port, environment

VERSION = "4.1.2"
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    # Without it the broker logs nothing, not even why it does not start.
    "org.slf4j:slf4j-simple:1.7.36",
)
HEAP = "512m"
NODE = 1

PROBE_TIMEOUT = 1.0

JVM = (
    f"-Xmx{HEAP}",
    "-XX:+UseSerialGC",
    # Half the processor time at the start; short runs never get it back from better code.
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)


class RealKafka(EmbeddedServer):
    """A broker on loopback; topics stay in `directory` over `stop`, `kill` and `start`.

    It ends with this process.
    """

    NAME = "Kafka"
    START_TIMEOUT = 90.0

    def __init__(self, directory: Path | str, doors: Sequence[int] = (), port: int | None = None) -> None:
        """Nothing runs before `start`.

        Args:
            directory: where settings, topics and log go; made if missing.
            doors: ports of loopback at which proxies listen; a client that comes through one is sent
                back through it. Each has a separate port of the broker behind it: `behind`.
            port: of loopback; None chooses a free one.
        """
        self._doors = {door: Port() for door in doors}
        self._controller = Port()
        super().__init__(directory, Port(port), self._controller, *self._doors.values())
        self._settings = self.directory / "server.properties"

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers, the same over restarts."""
        return f"{HOST}:{self.port}"

    def behind(self, door: int) -> int:
        """The broker's port that the proxy at `door` passes to, the same over restarts."""
        return self._doors[door].number

    def _prepare(self) -> list[str]:
        if not (self.directory / "topics" / "meta.properties").exists():
            self._format()
        return [*self._java(), "kafka.Kafka", str(self._settings)]

    def _java(self) -> list[str]:
        jars = java.jars(*COORDINATES)
        return [str(java.find()), *JVM, "-cp", os.pathsep.join(str(jar) for jar in jars)]

    def _format(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = self._properties()
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # A leading hyphen would be taken for an option.
        cluster = cluster.replace("-", "A", 1) if cluster.startswith("-") else cluster
        done = subprocess.run(
            [
                *self._java(),
                "kafka.tools.StorageTool",
                "format",
                "--standalone",
                "--cluster-id",
                cluster,
                "--config",
                str(self._settings),
            ],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
        )
        if done.returncode != 0:
            raise EmbeddedError(
                f"Kafka's storage in {self.directory} can't be formatted: {done.stdout.strip()}"
            )

    def _properties(self) -> dict[str, str | int]:
        broker, controller = f"{HOST}:{self.port}", f"{HOST}:{self._controller.number}"
        ours = {"PLAINTEXT": broker, "CONTROLLER": controller}
        doors = {f"DOOR{door}": port for door, port in self._doors.items()}
        listeners = ours | {name: f"{HOST}:{port.number}" for name, port in doors.items()}
        advertised = ours | {f"DOOR{door}": f"{HOST}:{door}" for door in self._doors}
        return {
            "process.roles": "broker,controller",
            "node.id": NODE,
            "controller.quorum.bootstrap.servers": controller,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
            "advertised.listeners": ",".join(f"{name}://{address}" for name, address in advertised.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.directory / "topics"),
            "num.partitions": 4,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            # Groups balance at once, and members may be given up within a second.
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            # A broker that was killed is let in again once its last session is over.
            "broker.session.timeout.ms": 2000,
            "broker.heartbeat.interval.ms": 500,
            # The cleaner's buffer is 128 MiB by default, a quarter of the heap.
            "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        }

    def _serves(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(PROBE_TIMEOUT)
            if probe.connect_ex((HOST, self.port)) != 0:
                return False
        # It listens before it takes requests in earnest: ask for what a client asks first.
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            return NODE in client.list_topics(timeout=PROBE_TIMEOUT).brokers
        except KafkaException:
            return False
