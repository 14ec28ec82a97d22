"""What the sink `webhook` sends, how it signs it, and what it understands of an answer. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import orjson

from pytube.errors import SinkContract
from pytube.model import OK, Document, Documents, Id, Reject, Result, Retry, Stale, Token
from pytube.sinks.jsonl import on_one_line

Format = Literal["ndjson", "json"]

CONTENT_TYPES: dict[Format, bytes] = {"ndjson": b"application/x-ndjson", "json": b"application/json"}

SECRET_PREFIX = "whsec_"  # noqa: S105 # how such a secret begins
_LONGEST_WAIT = 3600.0
"""Seconds of a Retry-After that are believed."""
LONGEST_REASON = 500


# --- requests -----------------------------------------------------------------------------------


def lines(tube: bytes, documents: Sequence[Document]) -> list[bytes]:
    """The documents as lines; `tube` is its name in JSON.

    Of a worker's documents, what is the same in all is written once: to write each line by itself would take
    as long as to send it.
    """
    if isinstance(documents, Documents):
        runs = documents.runs()
        found = [
            _run(tube, shard, documents.token, documents.seq, ids, bodies) for shard, ids, bodies in runs
        ]
    else:
        found = [_run(tube, one.shard, one.token, one.seq, [one.id], [one.body]) for one in documents]
    return [line for run in found for line in run]


def _run(
    tube: bytes, shard: int, token: Token, seq: int, ids: Sequence[Id], bodies: Sequence[bytes | None]
) -> list[bytes]:
    """The lines of documents of one shard, with one token."""
    head = b'{"tube":%b,"shard":%d,"id":' % (tube, shard)
    rest = b'"token":"%d","epoch":%d,"counter":%d,"seq":%d,"doc":' % (int(token), *token, seq)
    upsert, delete = b',"op":"upsert",%b' % rest, b',"op":"delete",%bnull' % rest
    text = b"".join(filter(None, bodies))
    if b"\n" in text or b"\r" in text:  # one look at all of them; there hardly ever is one
        bodies = [body and on_one_line(body) for body in bodies]
    keys = [b"%d" % key if isinstance(key, int) else orjson.dumps(key) for key in ids]
    return [
        b"%b%b%b%b}" % (head, key, upsert, body) if body is not None else b"%b%b%b}" % (head, key, delete)
        for key, body in zip(keys, bodies, strict=True)
    ]


def body_of(items: Sequence[bytes], form: Format) -> bytes:
    """The body of a request."""
    if form == "json":
        return b"[" + b",\n".join(items) + b"]"
    return b"\n".join([*items, b""])


def id_of(body: bytes) -> bytes:
    """The idempotency key: the same documents with the same tokens have the same one."""
    return b"pytube_" + hashlib.sha256(body).hexdigest()[:40].encode()


def key_of(secret: str) -> bytes:
    """The key of a secret such as `whsec_…`; `ValueError` when it is none."""
    if not secret.startswith(SECRET_PREFIX):
        raise ValueError("a secret begins with whsec_")
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    if not 24 <= len(key) <= 64:
        raise ValueError("a secret has 24 to 64 bytes")
    return key


def signature(keys: Iterable[bytes], message: bytes, timestamp: int, body: bytes) -> bytes:
    """The value of `webhook-signature`: one signature for each key, as Standard Webhooks has it."""
    signed = b"%b.%d.%b" % (message, timestamp, body)
    return b" ".join(b"v1," + base64.b64encode(hmac.digest(key, signed, "sha256")) for key in keys)


# --- answers ------------------------------------------------------------------------------------


def results_of(body: bytes, count: int, *, required: bool) -> list[Result]:
    """The results in the body of an answer with status 2xx.

    Without results in it, everything is taken, unless they are `required`.

    Raises:
        SinkContract: there is not one result for each document, or one can't be understood.
    """
    try:
        answer = json.loads(body) if body.strip() else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "results" not in answer:
        if required:
            raise SinkContract('sink "webhook": with compares = true an answer needs "results"')
        return [OK] * count
    items = answer["results"]
    if not isinstance(items, list) or len(items) != count:
        found = len(items) if isinstance(items, list) else "no list of"
        raise SinkContract(f'sink "webhook": the receiver answered {found} results for {count} documents')
    return [_result(at, item) for at, item in enumerate(items)]


def _result(at: int, item: Any) -> Result:
    match item:
        case {"status": "ok"}:
            return OK
        case {"status": "retry", "after": int() | float() as after} if after >= 0:
            return Retry(min(float(after), _LONGEST_WAIT), _reason(item))
        case {"status": "retry"} if "after" not in item:
            return Retry(1.0, _reason(item))
        case {"status": "reject"}:
            return Reject(_reason(item))
        case {"status": "stale", "token": str() as token} if token.isdigit():
            return Stale(int(Token.parse(token)))
    raise SinkContract(
        f'sink "webhook": result {at} is none; expected an object with "status" ok, retry (and "after" in '
        'seconds), reject (and "reason"), or stale (and "token", a text of digits)'
    )


def _reason(item: dict[str, Any]) -> str:
    return str(item.get("reason") or "the receiver gave no reason")


def wait_of(retry_after: str | None, now: float) -> float | None:
    """Seconds of a Retry-After, a number or a date; None where there is none, or none to be understood."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isdigit():
        return min(float(text), _LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
    return min(max(0.0, moment - now), _LONGEST_WAIT)
