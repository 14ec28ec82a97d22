"""NELI, leader election on Kafka: claims by the consumer group, proofs by heartbeats and commits."""

from pytube.election.neli.election import NeliElection
from pytube.election.neli.names import leader_name, parse_leader_name

__all__ = ["NeliElection", "leader_name", "parse_leader_name"]
