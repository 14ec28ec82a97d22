"""Documents for tests: batches made in one line, and documents at the edges of what Postgres can hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from pytube.model import Batch, Document, Id, Key, Token

TUBE = ContextVar("TUBE", default="conformance")
"""The tube of batches that name none."""


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
    tube: str | None = None,
    partition: int = 0,
    send_before: float = float("inf"),
) -> Batch:
    """A batch of the keys and values, as `document` takes them, all under one token."""
    documents = [document(key, value, token=token, seq=seq) for key, value in values.items()]
    return Batch(tube or TUBE.get(), partition, Token(*token), documents, send_before)


ODD_DOCUMENTS: dict[Key, Any] = {
    (0, 0): {},
    (0, -1): {"id": -1},
    (0, -(2**63)): {"id": "the least bigint"},
    (0, 2**63 - 1): {"id": "the greatest bigint"},
    (0, 2**53 + 1): {"n": 2**53 + 1, "m": -(2**63), "f": 0.1, "e": 1e300},
    (0, 2**53): {"why": "as a double it is the id before it"},
    (2**31 - 1, 1): {"shard": "the greatest"},
    (1, 1): {"text": "äöü €  \u2028 \u2029 \u0085 \U0001f600 \u200f"},
    (1, 2): {"text": 'line\nbreak\r\n\ttab "quotes" \\ back / \u0001 \u007f'},
    (1, 3): {"nothing": None, "yes": True, "list": [], "object": {}, "empty": ""},
    (1, 4): b'{"raw":\n  {"pretty": true,\r\n   "list": [1,\n2]}\n}\n',
    (1, 5): b'{"escaped": "\\u00e4\\ud83d\\ude00\\n"}',
    (1, 6): {"nested": {"a": {"b": {"c": [[[["deep"]]]]}}}},
    (1, 7): {"looks like": '{"shard":1,"id":1,"op":"delete"}\n'},
    (2, 1): {"same id": "in another shard"},
}
"""By key; bytes are the JSON text itself. Zero bytes are missing: jsonb and text refuse them."""

ODD_TEXTS = (
    *(
        "",
        " ",
        "NULL",
        "null",
        "7",
        "007",
        "-7",
        "a,b",
        "{a,b}",
        'say "x"',
        "it's",
        "\\",
        '\\"',
        "%s",
        "a/b?c=d#e",
    ),
    *(
        "line\nbreak\r\n\ttab",
        "\x01\x7f",
        "Straße",
        "STRASSE",
        "ä",
        "a\u0308",
        "\U0001f600",
        "\u2028",
        "ö" * 200,
    ),
    "6ecd8c99-4036-403d-bf84-cf8400f67836",
)
"""Ids in tubes of texts and uuids: each is another key."""
