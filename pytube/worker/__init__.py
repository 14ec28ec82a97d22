"""The worker: leads partitions of tubes and brings their pods to the sinks."""

from pytube.worker.worker import Worker

__all__ = ["Worker"]
