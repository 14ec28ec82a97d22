"""How often `pytube status --watch` reads: never so often that the database would feel it."""

from __future__ import annotations

from typing import cast

import pytest

from pytube.cli import status as module
from pytube.cli.fleet import Fleet, Reading


class Enough(Exception):
    """As many readings as the test wants."""


class FakeFleet:
    """Readings that take the database so long."""

    has_names = False

    def __init__(self, *took: float) -> None:
        self.left = list(took)

    def read(self, _: str | None) -> Reading:
        if not self.left:
            raise Enough
        return Reading(took=self.left.pop(0))


@pytest.mark.parametrize("watch", [module._watch_json, module._watch_lines, module._watch_table])
def test_what_took_long_is_read_again_only_after_long(monkeypatch: pytest.MonkeyPatch, watch: object) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("pytube.cli.status.time.sleep", pauses.append)
    assert callable(watch)
    with pytest.raises(Enough):
        watch(cast("Fleet", FakeFleet(0.001, 0.5, 0.0)), None, 1.0)
    assert pauses == [1.0, 60.0, 1.0]
