"""Batches in one line, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytube.model import Batch, Document, Id, Key, Token


def document(key: Id | Key, value: Any, *, token: Token | tuple[int, int] = (1, 1), seq: int = 1) -> Document:
    """A document of `key`, an id of shard 0 or `(shard, id)`.

    The value becomes its JSON text; bytes are taken as that text, None is a delete.
    """
    shard, id_ = key if isinstance(key, tuple) else (0, key)
    if value is None or isinstance(value, bytes):
        body = value
    else:
        body = json.dumps(value, ensure_ascii=False).encode()
    return Document(shard=shard, id=id_, body=body, token=Token(*token), seq=seq)


def batch(
    values: Mapping[Any, Any],
    *,
    token: Token | tuple[int, int] = (1, 1),
    seq: int = 1,
    tube: str = "conformance",
    partition: int = 0,
    send_before: float = float("inf"),
) -> Batch:
    """A batch of the keys and values, as `document` takes them, all under one token."""
    documents = [document(key, value, token=token, seq=seq) for key, value in values.items()]
    return Batch(tube, partition, Token(*token), documents, send_before)
