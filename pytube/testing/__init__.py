"""For authors of sinks: the suite that every sink passes, batches to send, and a sink in memory."""

from pytube.testing.contract import SinkContract
from pytube.testing.harness import batch, document
from pytube.testing.memory import Faults, MemorySink, MemoryStore

__all__ = ["Faults", "MemorySink", "MemoryStore", "SinkContract", "batch", "document"]
