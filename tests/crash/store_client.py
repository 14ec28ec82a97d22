"""Functions for the sink `callable` that send batches to the store of `tests.crash.store`."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import Any

from pytube.errors import SinkError, SinkUnavailable
from pytube.model import OK, Batch, Reject, Result, Retry, Stale
from tests.crash.journal_sink import REASON

PORT = "STORE_PORT"
_PATIENCE = 60.0
"""Seconds: more than a request may last, so that the worker gives up first."""


async def send_in_a_task(batch: Batch) -> list[Result]:
    """As one that is cancelled does: the connection is cut, and the store goes on with what it has."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ[PORT]), limit=1 << 24)
    try:
        writer.write(_request(batch))
        await writer.drain()
        return _results(await reader.readline())
    finally:
        writer.close()


def send_in_a_thread(batch: Batch) -> list[Result]:
    """Nobody can cut it off: it lasts until the store answers."""
    if batch.has_lapsed():
        raise SinkUnavailable("not sent: the right to send had lapsed")
    with socket.create_connection(("127.0.0.1", int(os.environ[PORT])), timeout=_PATIENCE) as connection:
        connection.sendall(_request(batch))
        return _results(connection.makefile("rb").readline())


def _request(batch: Batch) -> bytes:
    writes = [[d.shard, d.id, int(d.token), d.value()] for d in batch]
    return json.dumps({"client": os.environ["CLIENT_ID"], "writes": writes}).encode() + b"\n"


def _results(line: bytes) -> list[Result]:
    answer = json.loads(line)
    if isinstance(answer, str):
        raise SinkError(answer)
    return [_result(*one) for one in answer]


def _result(kind: str, value: Any = None) -> Result:
    match kind:
        case "ok":
            return OK
        case "retry":
            return Retry(0.05, "the other half")
        case "stale":
            return Stale(value)
        case _:
            return Reject(REASON)
