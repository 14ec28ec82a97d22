"""Nine of ten records of an outbox are of one key: the other keys do not wait for it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from pytube.embedded.kafka_real import RealKafka
from tests.crash.outbox_judge import MODES, WINDOW
from tests.crash.outboxes import Outboxes

RECORDS = 300
HOT = "hot"
OTHERS = tuple(f"key-{number}" for number in range(6))


async def test_the_other_keys_are_not_starved(dsn: str, tmp_path: Path, kafka_real: RealKafka) -> None:
    """All keys share one partition of the outbox, and one of the topic, whose offsets tell the order."""
    keys = [HOT] * (RECORDS * 9 // 10) + list(OTHERS) * (RECORDS // 10 // len(OTHERS))
    random.Random(1).shuffle(keys)
    # All at once, a key has at most this many records under way.
    with Outboxes(
        dsn, tmp_path, kafka_real.bootstrap, partitions=1, topic_partitions=1, window=WINDOW
    ) as outboxes:
        with outboxes.connect() as connection:
            for mode in MODES:
                outboxes.stash(connection, mode, keys)
        async with outboxes.running():
            await asyncio.to_thread(outboxes.wait_until_drained)
        assert outboxes.judge() == dict.fromkeys(MODES, 0)
        left = {mode: hot_records_left(outboxes, mode) for mode in MODES}
    assert min(left.values()) > keys.count(HOT) // 2, f"of the hot key were left: {left}"


def hot_records_left(outboxes: Outboxes, mode: str) -> int:
    """Records of the hot key that a consumer finds behind the last one of all others."""
    arrived = [one.key for one in outboxes.read(mode)]
    return arrived[::-1].index(next(key for key in reversed(arrived) if key != HOT))
