"""What the servers of a cluster answer together, over servers that a test plays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.exceptions import MovedError

from pytube.errors import SinkUnavailable
from pytube.sinks.redis_servers import RedisOptions, Server, Servers

KEYS = [b"a", b"b", b"c"]


class Cluster(Servers):
    """All keys are on one server, and the slots can't be read again."""

    def of(self, key: bytes) -> Server:  # noqa: ARG002 # as the one that asks for slots
        return self.seed

    async def refresh(self) -> None:
        raise SinkUnavailable("nobody answers")


@pytest.fixture
def cluster() -> Cluster:
    options = RedisOptions.parse(
        "redis", {"url": "redis://x", "cluster": True, "key": "{{{tube}:{shard}}}:{id}"}
    )
    return Cluster(options, None)  # type: ignore[arg-type] # nothing is connected


async def test_a_call_that_is_given_up_puts_the_slots_in_doubt(cluster: Cluster) -> None:
    """Else a server that hangs is asked again and again, whoever has its slots by then."""

    async def hangs(server: Server, items: list[bytes]) -> list[Any]:
        del server, items
        return await asyncio.Event().wait()  # type: ignore[return-value]

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(cluster.spread(KEYS, bytes, hangs), 0.01)
    assert cluster.in_doubt


async def test_what_was_written_counts_if_the_rest_has_moved_and_nobody_says_where(cluster: Cluster) -> None:
    async def moved(server: Server, items: list[bytes]) -> list[Any]:
        del server
        return [MovedError("1 x:7000") if one == b"b" else "OK" for one in items]

    first, second, third = await cluster.spread(KEYS, bytes, moved)
    assert (first, third) == ("OK", "OK")
    assert isinstance(second, SinkUnavailable)
