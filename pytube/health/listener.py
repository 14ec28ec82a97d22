"""Hears the heartbeats of one host's workers at Kafka, as a bystander. Needs the Kafka client.

It is a member of no group: it neither joins nor commits, so watching a fleet never causes a rebalance.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final
from uuid import UUID

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from pytube.config import Config
from pytube.config.names import leader_name
from pytube.election.neli.claim import decode
from pytube.election.neli.clients import DampedLog
from pytube.election.neli.settings import NeliSettings
from pytube.election.neli.shared import slot_of
from pytube.health.heartbeats import BEATING, Beat, Heard
from pytube.logs import Logger

_LOOK: Final = 5.0
"""Seconds between looks at which leader topics there are, and how wide they are."""
_AGAIN: Final = 1.0
"""Seconds until a broker that did not answer, or lacks a topic, is asked again."""
_FORGET: Final = 60.0
"""Seconds after which a term that is silent is forgotten."""
_POLL: Final = 0.1
_PROBE: Final = 1.0
"""Seconds between probes whether what is silent could be heard."""
_PATIENCE: Final = 2.0
"""Seconds after which a broker that does not answer a probe is not heard."""


class Listener:
    """Listens in a thread of its own, which begins with the first `listen`."""

    def __init__(self, config: Config) -> None:
        """Begins nothing yet. Args: config: of the host, with a section `[kafka]`."""
        assert config.kafka is not None
        self._config = config
        self._slots = config.kafka.shared_partitions
        # By a group's name, though it joins none: that is what librdkafka asks of a consumer, and brokers
        # whose rights go by names let our workers use this one.
        name = leader_name(config.worker.installation)
        self._settings = NeliSettings(
            config.kafka.bootstrap_servers,
            topic=name,
            group=name,
            client_id=f"{config.worker.client_id} listens",
            receive_deadline=config.worker.receive_deadline,
            session_timeout=config.worker.session_timeout,
            heartbeat=config.worker.heartbeat,
            options=config.kafka.options,
        )
        self._changed = threading.Condition()
        self._places: dict[tuple[str, int], tuple[str, int]] = {}
        self._beats: dict[tuple[str, int], dict[UUID, Beat]] = {}
        self._since: dict[str, float] = {}
        self._brokers: dict[tuple[str, int], int] = {}
        """The broker that leads each partition that is listened to."""
        self._until = 0.0
        self._probe_at = 0.0
        self._refused: set[str] = set()
        """Topics that the broker shows and does not let us read; it says so once."""
        self._problem: str | None = "Kafka has not answered yet"
        self._said: str | None = None
        """What librdkafka complained of last."""
        self._look_at = 0.0
        self._stopping = False
        # A daemon: a broker that stays silent must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="pytube-heartbeats", daemon=True)

    def listen(self, partitions: Collection[tuple[str, int]]) -> None:
        """Listen to the leaders of these partitions of tubes and outboxes from now on."""
        places = {one: self._place(*one) for one in partitions}
        with self._changed:
            if places != self._places:
                self._places, self._look_at = places, 0.0
        if self._thread.ident is None:
            self._thread.start()

    def heard(self) -> Heard:
        """What was heard until now."""
        with self._changed:
            return self._heard()

    def wait(self, timeout: float, until: Callable[[Heard], bool] = lambda _: False) -> None:
        """Wait so many seconds, if any are left, or until enough was heard."""
        with self._changed:
            self._changed.wait_for(lambda: until(self._heard()), max(0.0, timeout))

    def close(self, timeout: float = 0.5) -> None:
        """End; a call of librdkafka that takes longer is left to itself."""
        self._stopping = True
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _heard(self) -> Heard:
        return Heard(
            time.monotonic(),
            self._config.worker.receive_deadline,
            self._slots is not None,
            {place: list(beats.values()) for place, beats in self._beats.items()},
            self._places,
            dict(self._since),
            self._problem,
            self._until,
        )

    def _place(self, name: str, partition: int) -> tuple[str, int]:
        installation = self._config.worker.installation
        if self._slots is not None:
            return leader_name(installation), slot_of(name, partition, self._slots)
        if name in self._config.tubes or name in self._config.outboxes:
            return self._config.leader_topic(name), partition
        return leader_name(installation, name), partition

    # --- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            consumer = Consumer(
                {**self._settings.consumer(), "error_cb": self._on_error},
                logger=DampedLog(Logger("pytube.heartbeats"), self._settings.hide),
            )
        except (KafkaException, TypeError, ValueError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            self._fail(f"[kafka] options: {self._settings.hide(text)}")
            return
        try:
            while not self._stopping:
                if time.monotonic() >= self._look_at:
                    self._look(consumer)
                elif time.monotonic() >= self._probe_at:
                    self._probe(consumer)
                if (message := consumer.poll(_POLL)) is not None:
                    self._take(message)
        finally:
            consumer.close()

    def _look(self, consumer: Consumer) -> None:
        """Listen to all partitions that there are of the leader topics, to new ones from their end."""
        with self._changed:
            self._look_at = time.monotonic() + _LOOK
            wanted = {topic for topic, _ in self._places.values()}
        try:
            found = consumer.list_topics(timeout=self._config.worker.receive_deadline).topics
            brokers = {
                (topic, number): part.leader
                for topic in wanted & found.keys()
                for number, part in found[topic].partitions.items()
            }
            parts = brokers.keys()
            had = {(one.topic, one.partition) for one in consumer.assignment()}
            consumer.incremental_unassign([TopicPartition(*one) for one in had - parts])
            consumer.incremental_assign([TopicPartition(*one, OFFSET_END) for one in parts - had])
        except KafkaException as error:
            self._fail_to_hear(consumer, error)
            return
        now = time.monotonic()
        with self._changed:
            self._brokers = brokers
            self._since = {
                topic: self._since.get(topic, now) for topic, _ in parts if topic not in self._refused
            }
            self._problem = self._said = None
            if wanted - self._since.keys():
                self._look_at = min(self._look_at, now + _AGAIN)
            for beats in self._beats.values():
                for term in [term for term, beat in beats.items() if now - beat.last_at > _FORGET]:
                    del beats[term]
            self._changed.notify_all()

    def _probe(self, consumer: Consumer) -> None:
        """Ask the brokers of silent partitions for something, to tell their silence from our own deafness.

        A broker answers the requests of a connection in their order, so what it had before was heard by then.
        """
        now = time.monotonic()
        with self._changed:
            self._probe_at = now + _PROBE
            silent = {
                self._brokers[place]: place
                for place in self._places.values()
                if place in self._brokers
                and place[0] in self._since
                and all(now - beat.last_at > BEATING for beat in self._beats.get(place, {}).values())
            }
        try:
            for place in silent.values():
                consumer.get_watermark_offsets(TopicPartition(*place), timeout=_PATIENCE)
        except KafkaException as error:
            self._fail_to_hear(consumer, error)
            return
        with self._changed:
            self._until = now
            self._changed.notify_all()

    def _take(self, message: Message) -> None:
        topic, partition = message.topic(), message.partition()
        if (error := message.error()) is not None:
            self._on_error(error)
            if topic is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                with self._changed:
                    self._refused.add(topic)
                    self._since.pop(topic, None)
            return
        decoded = decode(message.value())
        if topic is None or partition is None or decoded is None:
            return
        heartbeat, now = decoded[0], time.monotonic()
        with self._changed:
            self._refused.discard(topic)
            beats = self._beats.setdefault((topic, partition), {})
            known = beats.get(heartbeat.leader_id)
            beats[heartbeat.leader_id] = (
                Beat(heartbeat.client_id, heartbeat.leader_id, heartbeat.epoch, now, now)
                if known is None
                else replace(known, last_at=now)
            )
            self._changed.notify_all()

    def _on_error(self, error: KafkaError) -> None:
        self._said = self._settings.hide(error.str())

    def _fail_to_hear(self, consumer: Consumer, error: KafkaException) -> None:
        consumer.poll(0)  # which calls `_on_error` with what is behind it
        self._fail(f"Kafka does not answer: {self._said or self._settings.hide(error.args[0].str())}")

    def _fail(self, problem: str) -> None:
        with self._changed:
            self._problem, self._since, self._look_at = problem, {}, time.monotonic() + _AGAIN
            self._changed.notify_all()
