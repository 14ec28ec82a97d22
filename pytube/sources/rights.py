"""What a worker's role needs, read off the statements that a worker sends."""

from __future__ import annotations

import re

from pytube.backfill import queries as backfills
from pytube.enrich.statements import ROOTS
from pytube.sources import queries

_STATEMENTS = [text for name, text in vars(queries).items() if name.isupper() and isinstance(text, str)]
_TEXT = "\n".join([*_STATEMENTS, ROOTS, *backfills.OF_WORKERS])

FUNCTIONS = frozenset(re.findall(r"\b(tube_[a-z_]+)\(", _TEXT))
"""pytube's functions that a worker calls."""

TABLES = frozenset(re.findall(r"\b(?:FROM|JOIN) (tube_[a-z_]+)\b(?!\()", _TEXT)) | {"tube_version"}
"""pytube's tables that a worker reads."""
