"""The configuration files of the workers, as a user would write them."""

from __future__ import annotations

import json
from pathlib import Path

TUBE = "es-live"
PARTITIONS = 4

SESSION_TIMEOUT = 4.0
"""Seconds after which a dead worker's partitions go to others: short, so that the take-over fits."""

_TEMPLATE = """\
# Written by the demo.

[postgres]
dsn = {dsn}
{kafka}
[worker]
client_id = {name}
election = "{election}"
session_timeout = {session_timeout}
receive_deadline = 2.0

[tube."{tube}".sink]
type = "jsonl"
path = {sink}
client = {name}
request_timeout = 2.0
"""
_KAFKA = """
[kafka]
bootstrap_servers = {bootstrap}
"""


def settings_of(name: str, *, dsn: str, bootstrap: str | None, election: str, sink: Path) -> str:
    """The TOML text for the worker `name`.

    Args:
        name: its client id, and the label of its lines at the sink.
        dsn: of the source.
        bootstrap: Kafka's bootstrap servers, None without Kafka.
        election: `neli` or `lease`.
        sink: the file that all workers append to.
    """
    return _TEMPLATE.format(
        dsn=_quoted(dsn),
        kafka="" if bootstrap is None else _KAFKA.format(bootstrap=_quoted(bootstrap)),
        name=_quoted(name),
        election=election,
        session_timeout=SESSION_TIMEOUT,
        tube=TUBE,
        sink=_quoted(str(sink)),
    )


def _quoted(text: str) -> str:
    # A JSON string without escapes of its own for non-ASCII is a TOML string.
    return json.dumps(text, ensure_ascii=False)
