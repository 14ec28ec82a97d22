"""NELI, leader election on Kafka: claims by the consumer group, proved by commits."""

from pytube.config.names import leader_name
from pytube.election.neli.election import NeliElection

__all__ = ["NeliElection", "leader_name"]
