"""A declared document, compiled: the query, the links and their paths."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from pytube.config.documents import DocumentSection, without_layout
from pytube.config.section import key_path
from pytube.documents.catalogue import Catalogue
from pytube.documents.expressions import Expressions
from pytube.documents.keys import parts_of, type_of
from pytube.documents.links import Group, groups_of, link_of, missing_indexes
from pytube.documents.model import Document, Link
from pytube.documents.query import document_query, with_placeholder, without_placeholders
from pytube.documents.tree import Node, build_tree, nodes_of


def compile_document(name: str, section: DocumentSection, catalogue: Catalogue) -> Document:
    """The document that `[document.NAME]` declares, as the tables are now.

    Raises:
        ConfigError: the declaration doesn't fit the tables, or this role can't find out.
    """
    path = key_path(("document", name))
    root = build_tree(path, section, catalogue)
    query = document_query(root)
    groups = groups_of(root)
    shard_place = None if section.shard_by is None else root.table.key.index(section.shard_by)
    links = tuple(link_of(group, root, catalogue, shard_place) for group in groups)
    check = Expressions(catalogue.connection).check_query
    check(without_placeholders(query), path)
    for link in links:
        if link.path is not None:
            check(link.path.replace("%(keys)s", "NULL").replace("%%", "%"), link.sections[0])
    return Document(
        name,
        type_of(root.table),
        section.partitions,
        section.shards,
        with_placeholder(query, "ids"),
        links,
        missing_indexes(root, groups),
        _digest(section, root, groups, links),
        parts_of(root.table),
    )


def _digest(section: DocumentSection, root: Node, groups: Sequence[Group], links: Sequence[Link]) -> str:
    """The digest of the declaration, and of its resolution by the catalog.

    Never of text that Postgres printed: another version prints the same otherwise.
    """
    canonical = {
        "declaration": without_layout(section),
        "nodes": [
            (
                node.path,
                str(node.table.name),
                node.parent_columns,
                node.columns,
                [name for name, _ in node.fields],
            )
            for node in nodes_of(root)
        ],
        "key": [(one.name, one.type.value) for one in parts_of(root.table)],
        "links": [
            (str(link.table), link.by, link.key_type.value, link.columns, group.is_relation, group.steps)
            for link, group in zip(links, groups, strict=True)
        ],
    }
    text = json.dumps(canonical, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
