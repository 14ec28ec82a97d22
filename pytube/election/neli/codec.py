"""Heartbeats as they stand on the leader topic: one JSON object each."""

from __future__ import annotations

from uuid import UUID

import orjson

from pytube.model import Heartbeat

VERSION = 1


def encode(heartbeat: Heartbeat, number: int) -> bytes:
    """The value of the message; `number` tells one beat of a claim from another."""
    return orjson.dumps(
        {
            "version": VERSION,
            "number": number,
            "client_id": heartbeat.client_id,
            "leader_id": str(heartbeat.leader_id),
            "epoch": heartbeat.epoch,
            "purged_seq": heartbeat.purged_seq,
            "lag": heartbeat.lag,
        }
    )


def decode(value: bytes | None) -> tuple[Heartbeat, int] | None:
    """Heartbeat and number; None for what is not a heartbeat that this version understands."""
    try:
        data = orjson.loads(value or b"")
        if not isinstance(data, dict) or data.get("version") != VERSION:
            return None
        heartbeat = Heartbeat(
            client_id=str(data["client_id"]),
            leader_id=UUID(data["leader_id"]),
            epoch=int(data["epoch"]),
            purged_seq=int(data["purged_seq"]),
            lag=float(data["lag"]),
        )
        return heartbeat, int(data["number"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
