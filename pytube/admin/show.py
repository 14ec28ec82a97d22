"""Pods with the documents of their keys: as they would be sent now, and as the sink has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from pytube.admin.pods import Pods, WaitingPod, list_pods
from pytube.config import Config
from pytube.errors import PodGone
from pytube.verify import Explanation, explain

_MOST = 10
"""Keys of a pod whose documents are shown."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Pods, and what their keys are about."""

    pods: Sequence[WaitingPod]
    documents: Sequence[Explanation]
    """Of the key, or of the pod's first ones: the document on both sides, and what differs."""


def show(connection: psycopg.Connection, config: Config, chosen: Pods) -> Shown:
    """Show pods and their documents. Changes nothing; must not be called within an event loop.

    Args:
        connection: autocommit.
        config: the worker's, of the same database: documents are read as it says.
        chosen: the pods: those of a key, or a single one by its seq.

    Raises:
        PodGone: no such pod waits.
    """
    rows = list_pods(connection, chosen, config.postgres.schema_name)
    if not rows:
        raise PodGone(f"no such pods wait in tube {chosen.tube!r}; `pytube pods list` shows those that do")
    first = rows[0]
    keys = [chosen.key] if chosen.key is not None else list(first.keys[:_MOST])
    return Shown(rows, [document(config, chosen.tube, first.shard, key) for key in keys])


def document(config: Config, tube: str, shard: int, key: str) -> Explanation:
    """The document of one key on both sides."""
    return asyncio.run(explain(config, tube, key, shard=shard))
