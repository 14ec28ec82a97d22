"""A declared document, resolved by the catalog: the links that its tubes follow, and its query.

The words: a *link* is the column by which a row joins its parent in the document. A change of a row touches
the link's values, old and new, never the row's own id: a row that is gone can't be looked up, and its link
is all that leads back to the document. Where the link holds keys of the document, that touches the
document. Any other link is a *relation*: its values are touched in a companion tube, and the *path* leads
from them to the keys of the documents.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytube.config.names import TableName
from pytube.keys import CompositeKey, KeyColumn
from pytube.model import KeyType


@dataclass(frozen=True, slots=True)
class Link:
    """One table, followed by one column; or by several, which hold the key of the document."""

    table: TableName
    by: tuple[str, ...]
    """The columns by which it is followed; several are in the order of the root's key."""
    key_type: KeyType
    """Of the column's values; of several columns, text."""
    columns: tuple[str, ...]
    """An UPDATE that changes none of these changes no document. Sorted; has those by which the table is
    followed, and the primary key."""
    path: str | None
    """A SELECT of the keys of documents, in one column and each once, that rows lead to whose link has one of
    the values `%(keys)s`, an array of `key_type`. None: the values are keys of documents."""
    sections: tuple[str, ...]
    """Where the file names the table, e.g. `document.orders.items`."""
    documents: tuple[float, float] = (1.0, 1.0)
    """How many documents a changed row touches, by Postgres' statistics: the mean, and the worst."""
    shard_by: str | None = None
    """The only one of them that a document's shard depends on; None: all count."""

    @property
    def column(self) -> str:
        """The first of the columns by which it is followed."""
        return self.by[0]


@dataclass(frozen=True, slots=True)
class Document:
    """One declared document."""

    name: str
    """Of its tube, too."""
    key_type: KeyType
    partitions: int
    shards: int
    query: str
    """Gives id and JSON text of the documents with the ids `%(ids)s`; as `[tube.NAME.enrich] query`."""
    links: tuple[Link, ...]
    """The first is the root table by its primary key. No table is there twice without a path, nor twice by
    one column with a path; it may be there without one and with one."""
    missing_indexes: tuple[str, ...]
    """`CREATE INDEX CONCURRENTLY …`, each with why as a comment behind it."""
    digest: str
    """Changes whenever a worker would read or follow something else."""
    key_columns: tuple[KeyColumn, ...] = ()
    """Of the root table, where its primary key has several; empty: it has one."""

    @property
    def key(self) -> CompositeKey | None:
        """The key of several columns; None: it has one."""
        return CompositeKey(self.key_columns) if self.key_columns else None

    @property
    def root(self) -> Link:
        """The root table, by its primary key."""
        return self.links[0]

    @property
    def own(self) -> tuple[Link, ...]:
        """The links that touch documents at once."""
        return tuple(link for link in self.links if link.path is None)

    @property
    def relations(self) -> tuple[Link, ...]:
        """The links from which a path leads to documents."""
        return tuple(link for link in self.links if link.path is not None)
