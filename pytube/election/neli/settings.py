"""The settings of NELI, and what they are for librdkafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytube.errors import ConfigError

_HEARTBEAT_MS = 300
_METADATA_MS = 5_000
_REJOIN_MARGIN = 5.0
_SHORTEST_SECRET = 4
_OURS = frozenset(
    {
        "allow.auto.create.topics",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "error_cb",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "logger",
        "log_cb",
        "max.poll.interval.ms",
        "metadata.broker.list",
        "on_commit",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "transactional.id",
    }
)
"""Options whose meaning the election rests on."""


@dataclass(frozen=True, slots=True)
class NeliSettings:
    """One member of one group. All times are seconds."""

    bootstrap_servers: str
    topic: str
    group: str
    client_id: str
    receive_deadline: float = 5.0
    """For how long a proof holds. Also the longest wait for an answer of a broker."""

    session_timeout: float = 15.0
    """After so long without a sign of life the group takes our partitions away."""

    heartbeat: float = 0.3
    """Pause between heartbeats on the leader topic, and at most 0.3 between those to the group."""

    drain_limit: float = 30.0
    """How long a partition that the group wants back may still be drained."""

    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """More settings for librdkafka. They may be secrets."""

    def __post_init__(self) -> None:
        taken = sorted(_OURS & self.options.keys())
        if taken:
            raise ConfigError(
                f"[kafka] options: {', '.join(taken)} can't be set there, leader election sets it; "
                "take it out"
            )
        if self.receive_deadline > self.session_timeout:
            raise ConfigError(
                f"receive_deadline ({self.receive_deadline:g} s) must not be above session_timeout "
                f"({self.session_timeout:g} s)"
            )

    def hide(self, text: str) -> str:
        """`text` without the values of options, which librdkafka likes to quote."""
        for value in map(str, self.options.values()):
            if len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, "…")
        return text

    def common(self) -> dict[str, Any]:
        """For every client."""
        return {
            "client.id": self.client_id,
            "reconnect.backoff.max.ms": 1000,
            "socket.keepalive.enable": True,
            "topic.metadata.refresh.interval.ms": _METADATA_MS,
            "metadata.max.age.ms": 3 * _METADATA_MS,
            **self.options,
            "bootstrap.servers": self.bootstrap_servers,
        }

    def consumer(self) -> dict[str, Any]:
        """For the member of the group.

        The classic protocol, since the newer one refuses a session timeout of our choice. No static
        membership: a static member does not leave the group when it stops, so that its partitions
        would wait for the session timeout.
        """
        # A member that drains must not be thrown out by a rebalance that waits for it.
        rejoin = max(self.session_timeout, self.drain_limit) + _REJOIN_MARGIN
        return {
            "fetch.error.backoff.ms": 100,
            # The embedded cluster keeps a fetch that long even when something has come.
            "fetch.wait.max.ms": _ms(self.heartbeat),
            # A commit waits on its connection behind a request to join, which the broker may keep
            # for that long. If it timed out, the connection would be cut, and the join with it.
            "socket.timeout.ms": max(60_000, _ms(rejoin + _REJOIN_MARGIN)),
            **self.common(),
            "group.id": self.group,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest",
            "allow.auto.create.topics": False,
            "session.timeout.ms": _ms(self.session_timeout),
            "heartbeat.interval.ms": min(_HEARTBEAT_MS, _ms(self.heartbeat)),
            "max.poll.interval.ms": _ms(rejoin),
        }

    def producer(self) -> dict[str, Any]:
        """For the sender of heartbeats: late ones prove nothing, so they are dropped."""
        return {
            "linger.ms": 0,
            "socket.timeout.ms": max(2000, _ms(self.receive_deadline)),
            "message.timeout.ms": max(1000, _ms(self.receive_deadline)),
            **self.common(),
        }


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
