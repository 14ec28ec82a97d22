"""The outbox: messages written in a transaction of Postgres, delivered to Kafka in order per key."""

from pytube.outbox.stash import Message, stash, stash_async
from pytube.outbox.writer import Backend, MemoryBackend, Outbox

__all__ = ["Backend", "MemoryBackend", "Message", "Outbox", "stash", "stash_async"]
