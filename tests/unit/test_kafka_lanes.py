"""With several hosts, each partition of each host has a transactional id of its own."""

from __future__ import annotations

import pytest

from pytube.model import Batch, Token
from pytube.sinks import kafka
from pytube.sinks.kafka import KafkaSink


def test_partitions_of_two_hosts_have_transactional_ids_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane itself would open a producer; only its id is looked at."""
    monkeypatch.setattr(kafka, "Lane", lambda _clients, _topic, name: name)
    sink = KafkaSink.from_options(
        {"bootstrap_servers": "127.0.0.1:1", "topic": "t", "transactional_id": "shop.{tube}.{partition}"}
    )
    sink._lanes = {}
    batches = [Batch("t", 3, Token(1, 1), [], host=host) for host in (None, "eu", "us", "eu")]
    assert [str(sink._lane(batch)) for batch in batches] == [
        "shop.t.3",
        "shop.t.3@eu",
        "shop.t.3@us",
        "shop.t.3@eu",
    ]
