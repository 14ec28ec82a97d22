"""Source against sink, every row, both ways."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[int, int]
"""Shard and id."""

_SHOWN = 3
_LONGEST = 300


@dataclass(slots=True)
class Comparison:
    """What was compared, and what differs."""

    rows: int = 0
    missing: int = 0
    """In the source, not at the sink."""
    extra: int = 0
    """At the sink, not in the source."""
    different: int = 0
    examples: list[str] = field(default_factory=list)
    """The first few of each kind, a sentence each."""

    @property
    def equal(self) -> bool:
        """Whether every row is at the sink as in the source, and nothing else is."""
        return not (self.missing or self.extra or self.different)


def compare(source: Iterable[tuple[Key, Any]], sink: Mapping[Key, Any]) -> Comparison:
    """Compare decoded documents.

    Args:
        source: every row, once.
        sink: what it holds, without what was deleted.
    """
    found = Comparison()
    seen = set()
    for key, document in source:
        found.rows += 1
        seen.add(key)
        if key not in sink:
            found.missing += 1
            _show(found, found.missing, f"missing at the sink: {_name(key)}: {_text(document)}")
        elif sink[key] != document:
            found.different += 1
            text = f"different: {_name(key)}: source {_text(document)}, sink {_text(sink[key])}"
            _show(found, found.different, text)
    for key, document in sink.items():
        if key not in seen:
            found.extra += 1
            _show(found, found.extra, f"only at the sink: {_name(key)}: {_text(document)}")
    return found


def _show(found: Comparison, count: int, text: str) -> None:
    if count <= _SHOWN:
        found.examples.append(text)


def _name(key: Key) -> str:
    return f"shard {key[0]} id {key[1]}"


def _text(document: Any) -> str:
    text = json.dumps(document)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
