"""NELI, leader election on Kafka: claims by the consumer group, proved by commits."""

from pytube.config.names import leader_name
from pytube.election.neli.election import NeliElection
from pytube.election.neli.member import NeliSettings

__all__ = ["NeliElection", "NeliSettings", "leader_name"]
