"""Declared documents, compiled with real tables: what the query reads, where the paths lead, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytube.config import parse
from pytube.documents.catalogue import Catalogue
from pytube.documents.compile import compile_document
from pytube.documents.model import Document, Link
from pytube.errors import ConfigError
from tests.helpers.documents_compile import DECLARATION, SCHEMA, TABLES, ByHand, Conn, Row, fill

_POSTGRES = '[postgres]\ndsn = "dbname=x"\n'


def compiled(connection: Conn, text: str) -> Document:
    """The only document that a text declares."""
    config = parse(_POSTGRES + text)
    ((name, section),) = config.documents.items()
    return compile_document(name, section, Catalogue(connection))


def documents_of(connection: Conn, document: Document, ids: list[Any]) -> dict[Any, Any]:
    """What the query gives for the ids, by id."""
    rows = connection.execute(document.query.encode(), {"ids": ids}).fetchall()
    found = {key: json.loads(json.dumps(body), parse_float=str) for key, body in rows}
    assert len(found) == len(rows)
    return found


def touched(connection: Conn, link: Link, row: Row) -> set[Any]:
    """The keys of documents that a change of the row touches."""
    value = row[link.column]
    if value is None:
        return set()
    if link.path is None:
        return {value}
    rows = connection.execute(link.path.encode(), {"keys": [value]}).fetchall()
    found = {key for (key,) in rows}
    assert None not in found
    assert len(found) == len(rows)
    return found


@pytest.fixture
def session(any_bare_dsn: str) -> Iterator[Conn]:
    with psycopg.connect(any_bare_dsn, autocommit=True) as connection:
        # Numbers as they are written: 1.0 and 1.00 are two documents.
        psycopg.types.json.set_json_loads(lambda text: json.loads(text, parse_float=str), connection)
        connection.execute(SCHEMA.encode())
        yield connection


@pytest.mark.every_server
@pytest.mark.parametrize("seed", range(3))
def test_the_query_gives_the_documents_that_one_makes_by_hand(session: Conn, seed: int) -> None:
    fill(session, seed)
    document = compiled(session, DECLARATION)
    by_hand = ByHand(session)
    keys = [row["Id"] for row in by_hand.tables["Order"]]
    found = documents_of(session, document, [*keys, "absent"])
    for key, expected in by_hand.documents.items():
        expected["backups"] = found[key]["backups"] and str(expected["backups"])
        assert_same(found[key], expected)
    assert found.keys() == by_hand.documents.keys()


def assert_same(found: Row, expected: Row) -> None:
    numbers = ("backups",)
    for name in numbers:
        left, right = found.pop(name), expected.pop(name)
        assert (left is None) == (right is None)
        assert left is None or float(left) == float(right)
    assert list(found) == list(expected)
    assert found == expected


@pytest.mark.every_server
@pytest.mark.parametrize("seed", range(3))
def test_paths_lead_from_each_row_to_all_documents_that_hold_it(session: Conn, seed: int) -> None:
    fill(session, seed)
    document = compiled(session, DECLARATION)
    by_hand = ByHand(session)
    exact = {"items", "labels", "item_labels", "Customers"}
    for table in TABLES:
        links = [link for link in document.links if link.table.table == table]
        assert links
        for row in by_hand.tables[table]:
            holders = by_hand.holders_of(table, row)
            reached = set[Any]().union(*(touched(session, link, row) for link in links))
            assert holders <= reached, (table, row)
            if table in exact:
                assert reached & by_hand.documents.keys() == holders, (table, row)
