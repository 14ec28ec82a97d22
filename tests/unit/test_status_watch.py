"""How often `pytube status --watch` reads: never so often that the database would feel it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest

from pytube.cli.status import _lines, _watch
from pytube.health.fleet import FleetSample, Hindrance, HostSample
from pytube.health.watcher import FleetWatcher


class Enough(Exception):
    """As many readings as the test wants."""


class FakeWatcher:
    """Readings that take the database so long."""

    def __init__(self, *took: float) -> None:
        self.left = list(took)

    def sample(self) -> FleetSample:
        if not self.left:
            raise Enough
        return FleetSample(datetime.now(UTC), [HostSample(None, took=self.left.pop(0))], [])


def test_what_took_long_is_read_again_only_after_long(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("pytube.cli.status.time.sleep", pauses.append)
    with pytest.raises(Enough):
        _watch(cast("FleetWatcher", FakeWatcher(0.001, 0.5, 0.0)), None, 1.0, lambda _: None)
    assert pauses == [1.0, 60.0, 1.0]


def test_lines_for_a_pipe_have_all_that_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """Not only what is down: what slows a partition, too."""
    found = Hindrance("t", 0, "locked", "public.goods is locked by pid 7", 4.0)
    _lines([])(FleetSample(datetime.now(UTC), [HostSample(None, hindered=[found])], []))
    said = capsys.readouterr().err
    assert said == (
        "t partition 0: waits for a lock for 4.0 s: public.goods is locked by pid 7; "
        "more: docs/errors.md#table-locked\n"
    )
