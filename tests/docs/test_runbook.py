"""The runbook has a section for each alert, and each of its commands works as printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Servers
from tests.docs.pages import Block
from tests.docs.shell import Shell
from tests.docs.shop import ALERTS, RUNBOOK, Shop

SECTIONS = re.findall(r"^## (.+)$", RUNBOOK.prose(), re.MULTILINE)


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    assert {name for name in SECTIONS if name.startswith("Pytube")} == set(ALERTS)
    assert len(SECTIONS) == len(set(SECTIONS))


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_names_its_section_which_says_what_it_means_and_what_to_do(name: str) -> None:
    assert ALERTS[name].runbook == f"docs/runbook.md#{name.lower()}"
    text = RUNBOOK.section(name)
    for word in ("Means", "Look", "Do"):
        assert re.search(rf"\*\*{word}\*\*|\*\*Look\*\* and \*\*do\*\*", text), word


@pytest.fixture
def shop(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    with Shop(servers.get(18), tmp_path) as shop:
        yield shop


def test_every_command_works(shop: Shop) -> None:
    """In the order of the page, beside a worker; before some, what makes them necessary comes to pass."""
    shop.start_worker()
    shop.operate("pytube backfill start es-live --wait")
    shell = Shell(shop.folder, shop.dsn, shop.server.bin("psql").parent)
    before: dict[str, Callable[[], None]] = {
        "pytube outbox status orders": lambda: stash(shop),
        "pytube park list es-live": lambda: park(shop),
        "pytube park retry es-live --yes": lambda: shop.cure(7),
        "pytube pods show es-live 7": lambda: leave_waiting(shop),
        "pytube verify es-live --sample 1000": lambda: touch(shop),
        "pytube backfill cancel es-live": lambda: begin_backfill(shop),
        'psql "$PYTUBE_DSN" -c \'VACUUM (FULL) tube."es-live"\'': lambda: end_pause(shop),
    }
    try:
        for block in RUNBOOK.blocks("sh", "sql"):
            if block.language == "sql":
                shell.psql(block.text)
                continue
            for line in block.text.splitlines():
                before.pop(line, lambda: None)()
                shell.run(Block(block.page, block.line, "sh", line))
    finally:
        shell.close()
    assert before == {}
    assert shop.copy() == shop.source()


def stash(shop: Shop) -> None:
    """There is an outbox, with a record that nobody sends."""
    shop.operate("pytube outbox create orders")
    shop.query("SELECT tube.outbox_stash('orders', 'order-events', '42', 'placed')")


def park(shop: Shop) -> None:
    """A document is parked."""
    shop.poison(7)
    shop.query("UPDATE public.orders SET total = 70 WHERE id = 7")
    shop.operate("pytube wait es-live --ignore-parked")


def leave_waiting(shop: Shop) -> None:
    """The tube has stopped, as it were, with a document in it."""
    shop.operate("pytube pause es-live")
    shop.query("UPDATE public.orders SET total = 71 WHERE id = 7")


def touch(shop: Shop) -> None:
    """The document that was acknowledged is sent after all."""
    shop.operate("pytube touch es-live public.orders 7")
    shop.operate("pytube wait es-live")


def begin_backfill(shop: Shop) -> None:
    """One is under way."""
    shop.operate("pytube pause es-live")
    shop.operate("pytube backfill start es-live --in-worker")


def end_pause(shop: Shop) -> None:
    """What waits is delivered."""
    shop.operate("pytube resume es-live")
