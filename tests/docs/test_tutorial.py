"""The tutorials work as they are printed, on real servers; what is replaced is named here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytube.embedded.kafka_mock import MockKafka
from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.postgres import SUPERUSER, Postgres
from pytube.embedded.process import HOST
from pytube.embedded.search_server import SearchServer
from tests.docs.pages import BY_NAME, Block, Page
from tests.docs.reader import Reader, matches, steps
from tests.helpers.database import SETTINGS, server_folder
from tests.helpers.opensearch import request

SEARCH_INDEX = BY_NAME["docs/tutorial-search-index.md"]
OUTBOX = BY_NAME["docs/tutorial-outbox.md"]
ORDERS = 50_000
"""So many the page has."""
FEW = 2_000
SOONER = {
    'election = "lease"': 'election = "lease"\nsession_timeout = 6\nreceive_deadline = 2',
    'on_poison = "hold"': 'on_poison = "hold"\nmessage_timeout = 3',
    "sleep(0.1)": "sleep(0.02)",
    "sleep 3": "sleep 1",
    "python topics.py": "true",
}
"""The tutorial on outboxes within seconds: shorter waits, and the mock, which makes topics by itself."""


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """A server of its own: the page makes and drops roles, which belong to the whole server."""
    with server_folder() as folder, Postgres(folder, 18, settings=SETTINGS) as server:
        yield server


@pytest.fixture
def search(real_opensearch: SearchServer) -> Iterator[str]:
    yield real_opensearch.url
    for name in request(f"{real_opensearch.url}/orders,products/_alias?ignore_unavailable=true"):
        request(f"{real_opensearch.url}/{name}", "DELETE")


@pytest.fixture
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of its own, since the page has names for topics: librdkafka's mock, or a real broker."""
    with request.param(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("orders", [FEW, pytest.param(ORDERS, marks=pytest.mark.soak)])
def test_search_index(orders: int, own_postgres: Postgres, search: str, tmp_path: Path) -> None:
    of_a_product = 3 * orders // 500
    replaced = {
        "http://localhost:9200": search,
        str(ORDERS): str(orders),
        str(ORDERS - 1): str(orders - 1),
        "300": str(of_a_product),
        "299": str(of_a_product - 1),
    }
    follow(SEARCH_INDEX, own_postgres, tmp_path, replaced)
    assert request(f"{search}/_alias/orders,products")["status"] == 404


@pytest.mark.parametrize(
    ("kafka", "replaced"),
    [(MockKafka, SOONER), pytest.param(RealKafka, {}, marks=pytest.mark.soak)],
    indirect=["kafka"],
    ids=["mock", "real"],
)
def test_outbox(kafka: str, replaced: dict[str, str], own_postgres: Postgres, tmp_path: Path) -> None:
    follow(OUTBOX, own_postgres, tmp_path, {"localhost:9092": kafka, **replaced})


def follow(page: Page, postgres: Postgres, folder: Path, replaced: dict[str, str]) -> None:
    """Follow a page in a folder, which is empty again at its end."""
    environment = {
        "PATH": f"{postgres.bin('psql').parent}:{os.environ['PATH']}",
        "PGHOST": HOST,
        "PGPORT": str(postgres.port),
        "PGUSER": SUPERUSER,
    }
    replaced = {"localhost/shop": f"{HOST}:{postgres.port}/shop", **replaced}
    with Reader(folder, replaced, environment) as reader:
        for step in steps(page):
            reader.follow(step)
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("shown", "output", "is_equal"),
    [
        ("sent (0.2 s)\n", "sent (12 ms)\n", True),
        ("sent (0.2 s)\n", "sent\n", False),
        ("about 300 documents…\n", "about 12 documents, at most 20\n", True),
        ("a  b\n…\nz\n", "a\tb\nc\nd\nz\n", True),
        ("a  b\n…\nz\n", "a\tb\nc\nd\n", False),
        ("7 keys\n", "pytube: looking for keys that only the sink has\n7 keys\n", True),
        ("7 keys\n", "verify orders: 0 missing, of 2 keys compared (10%)\n7 keys\n", True),
        ("7 keys\n", "8 keys\n", False),
        ("7 keys\n", "7 keys\nand more\n", False),
        ("7 keys\n", "", False),
    ],
)
def test_what_counts_as_printed(shown: str, output: str, is_equal: bool) -> None:
    assert matches(output, Block("page", 1, "text", shown)) is is_equal


def test_json_counts_as_printed_whatever_its_order() -> None:
    shown = Block("page", 1, "json", '{"a": 1.50, "b": [1, 2]}')
    assert matches('{"b":[1,2],"a":1.5}', shown)
    assert not matches('{"b":[2,1],"a":1.5}', shown)
    assert not matches("no JSON", shown)
