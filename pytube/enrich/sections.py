"""Which section of the configuration makes the documents of which root table, and when that can't be told.

A pod names no table, but its shard does: the root table of a shard is the first one attached in it. A query
that is not told the shard can't tell the ids of two root tables apart. It would give documents of one table
for ids of the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytube.config import DocumentConfig, EnrichConfig
from pytube.config.environment import key_path
from pytube.config.names import table_name
from pytube.enrich.statements import Root, Roots

PARAMETERS = ("ids", "shard")
"""What a query may ask for."""

_PERCENT = re.compile(r"%(?:%|\(([^()]*)\)[sbt]|(.?))", re.DOTALL)


def section_of(config: EnrichConfig, root: Root) -> DocumentConfig:
    """The table's own section, else that of the tube."""
    return config.of_table(root.schema, root.table) or config


def section_path(tube: str, table: str | None = None) -> str:
    """A section as it stands in the file; `table`: that of a table."""
    return f"[{key_path(('tube', tube, 'enrich', *([] if table is None else [table])))}]"


def parameters_of(query: str) -> set[str]:
    """The names of its placeholders."""
    return {match[1] for match in _PERCENT.finditer(query) if match[1] is not None}


def stray_percent(query: str) -> str | None:
    """The text around the first `%` that is neither a placeholder nor `%%`; None when there is none."""
    for match in _PERCENT.finditer(query):
        if match[2] is not None:
            return query[max(0, match.start() - 10) : match.start() + 10]
    return None


def refusal(config: EnrichConfig, tube: str, roots: Roots, root: Root) -> str | None:
    """Why no documents of a root table may be read now; None when they may.

    A table without a section of its own is refused while a section names no attached table: it may be
    that table under another name.
    """
    if config.of_table(root.schema, root.table) is not None:
        return None
    return next(_absent(config, tube, roots), None) or _ambiguity(config, tube, roots)


def refusals(config: EnrichConfig, tube: str, roots: Roots) -> Iterator[str]:
    """What can't work with the tables that are attached: each a sentence with its remedy."""
    yield from _absent(config, tube, roots)
    roots_of = {(table.schema, table.table): roots.of(table.shard) for table in roots.tables}
    for name in config.tables:
        root = roots_of.get(table_name(name))
        if root is not None and (root.schema, root.table) != table_name(name):
            yield (
                f"{section_path(tube, name)} is for a table that is related to {root.name} in tube {tube!r}: "
                f"pods of its changes hold ids of {root.name}; give {root.name} the section, or attach "
                f"{name} in a shard of its own"
            )
    ambiguity = _ambiguity(config, tube, roots)
    if ambiguity is not None:
        yield ambiguity


def _absent(config: EnrichConfig, tube: str, roots: Roots) -> Iterator[str]:
    attached = {(table.schema, table.table) for table in roots.tables}
    for name in config.tables:
        if table_name(name) not in attached:
            known = ", ".join(table.name for table in roots.tables) or "none"
            yield (
                f"{section_path(tube, name)} names a table that is not attached to tube {tube!r} (attached: "
                f"{known}); correct the name, take the section out, or attach the table"
            )


def _ambiguity(config: EnrichConfig, tube: str, roots: Roots) -> str | None:
    if config.query is None or "shard" in parameters_of(config.query):
        return None
    readers = [root.name for root in roots.all if config.of_table(root.schema, root.table) is None]
    if len(readers) < 2:
        return None
    return (
        f"the query of {section_path(tube)} would read ids of {' and '.join(readers)}, which are all root "
        f"tables of tube {tube!r}, and has no %(shard)s to tell them apart; give each table its query in "
        f"{section_path(tube, readers[-1])}, or use %(shard)s"
    )
