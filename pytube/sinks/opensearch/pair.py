"""The two indices of a blue/green reindex, and the aliases that tell every worker of them.

The state of a reindex is in the cluster's aliases, and nowhere else. Without one, documents go through the
alias that is searched. While there is one, that alias takes no writes (`is_write_index: false`), and each of
the two indices has an alias to be written through. So the server itself refuses a worker that has not
noticed: there is no moment at which a write can miss one of the indices unseen.

The names of the two hold the moment of the start, so that a write that was meant for an earlier reindex, and
comes late, finds no alias.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

BLUE = "--blue-"
"""Of the index from which documents move."""
GREEN = "--green-"
"""Of the index that is filled."""
_GENERATION = r"\d{14}"


def path_of(name: str) -> str:
    """The path of requests to an index or an alias, or to several, joined by commas."""
    return "/" + quote(name, safe=",")


@dataclass(frozen=True, slots=True)
class Index:
    """Where documents go."""

    name: str
    """Of the index, or of an alias."""
    is_alias: bool

    @property
    def path(self) -> str:
        """Of requests."""
        return path_of(self.name)


@dataclass(frozen=True, slots=True)
class Targets:
    """What the sink searches, and what it writes to."""

    searched: Index
    written: tuple[Index, ...]
    """Each gets every document: one index, or both of a reindex."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One reindex of the alias `index`."""

    index: str
    generation: str

    @classmethod
    def among(cls, index: str, aliases: Iterable[str]) -> Self | None:
        """The reindex that the aliases of an index belong to; None when to none."""
        pattern = re.compile(f"{re.escape(index)}(?:{BLUE}|{GREEN})({_GENERATION})")
        found = next((match for name in aliases if (match := pattern.fullmatch(name))), None)
        return None if found is None else cls(index, found[1])

    @property
    def blue(self) -> str:
        """The alias of the old index."""
        return f"{self.index}{BLUE}{self.generation}"

    @property
    def green(self) -> str:
        """The alias of the new index."""
        return f"{self.index}{GREEN}{self.generation}"

    @property
    def new_index(self) -> str:
        """The name of the new index."""
        return f"{self.index}-{self.generation}"

    @property
    def targets(self) -> Targets:
        """While the reindex is under way."""
        return Targets(Index(self.index, True), (Index(self.blue, True), Index(self.green, True)))


def takes_no_writes(aliases: Mapping[str, Any], index: str) -> bool:
    """Whether the alias `index` refuses writes."""
    return aliases.get(index, {}).get("is_write_index") is False
