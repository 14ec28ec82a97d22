"""Names at Kafka that are made from names of ours."""

from __future__ import annotations

import hashlib
import re

_LONGEST = 200


def kafka_name(installation: str, tube: str) -> str:
    """`pytube.<installation>.<tube>`, a legal name of a topic and of a group.

    What Kafka does not allow becomes `_`, and then a hash of the name keeps it from colliding.
    """
    name = f"pytube.{installation}.{tube}"
    legal = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    if legal == name and len(name) <= _LONGEST:
        return name
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()[:12]
    return f"{legal[:_LONGEST]}-{digest}"
