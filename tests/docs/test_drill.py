"""The drill: troubles are found by status, doctor and alerts, and mended by the runbook's commands alone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Servers
from tests.docs.shop import RUNBOOK, Shop

AHEAD = 100_000
"""Seconds by which a clock was wrong: so far epochs are ahead of it."""


@pytest.fixture
def shop(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pytube.health.server._OLD", 0.0)
    with Shop(servers.get(18), tmp_path) as shop:
        yield shop


def test_drill(shop: Shop) -> None:
    """One worker process lives through it all."""
    backup = shop.back_up()
    ahead = int(time.time()) + AHEAD
    shop.operate(f"pytube tube rebase es-live --epoch {ahead}")
    shop.start_worker()
    shop.operate("pytube backfill start es-live --wait")
    shop.wait_for_calm(PytubeLongTransaction=0.0)
    poison(shop)
    sink_outage(shop)
    stuck_transaction(shop)
    done = shop.follow("PytubePaused", "pytube audit es-live")
    assert [action for action in ("park retry", "resume") if action not in done] == []
    restored_backup(shop, backup, ahead)
    assert shop.copy() == shop.source()


def poison(shop: Shop) -> None:
    """One document is parked; the next one stops the tube, because no more may be parked."""
    section = "PytubeParked"
    shop.poison(3)
    shop.query("UPDATE public.orders SET total = 30 WHERE id = 3")
    shop.operate("pytube wait es-live --ignore-parked")
    assert shop.alerts() == {"PytubeParked"}
    assert "no_3" in shop.follow(section, "pytube park list es-live")

    shop.poison(5)
    shop.query("UPDATE public.orders SET total = 50 WHERE id = 5")
    shop.wait_for("stopped")
    assert shop.alerts() == {"PytubeParked", "PytubeStopped"}
    section = "PytubeStopped"
    assert "no_5" in shop.follow(section, "pytube status es-live")
    assert " 5" in shop.follow(section, "pytube pods list es-live --limit 10").replace("\t", " ")

    shop.cure(3)
    shop.cure(5)
    shop.follow("PytubeParked", "pytube park retry es-live --yes")
    shop.follow(section, "pytube resume es-live")
    shop.follow("PytubeParked", "pytube wait es-live --timeout 60")
    assert shop.copy()[3] == 30
    assert shop.copy()[5] == 50
    shop.wait_for_calm()


def sink_outage(shop: Shop) -> None:
    """Changes wait in the tube, and nothing is parked."""
    section = "PytubeSinkDown"
    shop.let_sink(answer=False)
    shop.query("UPDATE public.orders SET total = 8 WHERE id = 8")
    shop.wait_for_alert("PytubeSinkDown")
    assert "not currently accepting connections" in shop.follow(section, "pytube status es-live")
    found = shop.follow(section, "pytube doctor", code=1)
    assert "fail partition 0 of es-live: sink down" in found
    assert "fail sink of es-live" in found

    shop.let_sink(answer=True)
    shop.follow(section, "pytube wait es-live --timeout 60")
    assert shop.copy()[8] == 8
    shop.wait_for_calm()


def stuck_transaction(shop: Shop) -> None:
    """Others' changes are delivered meanwhile; the doctor says who it is, and how to end it."""
    section = "PytubeLongTransaction"
    with psycopg.connect(shop.dsn, application_name="nightly job") as stuck:
        stuck.execute("INSERT INTO public.orders VALUES (21, 21)")
        shop.query("UPDATE public.orders SET total = 9 WHERE id = 9")
        shop.follow("PytubeLag", "pytube wait es-live --timeout 60")
        assert shop.copy()[9] == 9
        assert shop.alerts(PytubeLongTransaction=0.0) == {section}
        found = " ".join(shop.follow(section, "pytube doctor").split())
        pid = stuck.info.backend_pid
        told = rf"transaction of pid {pid} \(nightly job, idle in transaction\) is open for \d+ s"
        assert re.search(told, found), found
        # The section shows the same with another pid.
        (example,) = [block.text for block in RUNBOOK.blocks("text") if "nightly job" in block.text]
        assert re.search(told.replace(str(pid), "4711"), " ".join(example.split()))
        (end,) = re.findall(rf"end it: (SELECT pg_terminate_backend\({pid}\))", found)
        assert end.replace(str(pid), "4711") in example
        shop.query(end)
        with pytest.raises(psycopg.errors.AdminShutdown):
            stuck.execute("SELECT 1")
    shop.wait_for_calm(PytubeLongTransaction=0.0)
    assert "nightly job" not in shop.follow(section, "pytube doctor")


def restored_backup(shop: Shop, backup: Path, ahead: int) -> None:
    """The sink has rows and states that the source does not have any more, under tokens that are too high."""
    section = "Restore from a backup"
    shop.query("INSERT INTO public.orders VALUES (22, 22)")
    shop.query("DELETE FROM public.orders WHERE id = 11")
    shop.operate("pytube wait es-live")
    shop.restore(backup)
    shop.query("UPDATE public.orders SET total = 12 WHERE id = 12")
    shop.wait_for_alert("PytubeSinkDown")
    told = shop.follow(section, "pytube status es-live")
    assert "was it restored from a backup?" in told
    (rebase, epoch) = re.findall(r"`(pytube tube rebase es-live --epoch (\d+))`", told)[0]
    assert ahead < int(epoch)
    assert rebase in shop.operate("pytube doctor", code=1).output

    # The command stands in the section, too, with another epoch.
    assert f"\n{rebase.replace(epoch, '1795253820')}\n" in RUNBOOK.section(section)
    shop.operate(rebase)
    shop.follow(section, "pytube verify es-live --repair", code=1)
    shop.follow(section, "pytube wait es-live --timeout 60")
    shop.follow(section, "pytube verify es-live")
    assert 22 not in shop.copy()
    assert shop.copy()[11] == 11
    shop.wait_for_calm()
