"""The files of Java servers, which are fetched once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytube.embedded import java
from pytube.embedded.process import EmbeddedError


def test_what_an_interrupted_fetch_has_written_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    whole, half, environment = (
        tmp_path / "pytube" / path for path in ("maven/a/whole.jar", "maven/a/half.jar", "jgo/envs/a")
    )
    with java._maven("a"):
        whole.parent.mkdir(parents=True)
        whole.write_text("whole")
        os.utime(whole, (0, 0))  # some time ago
        environment.mkdir(parents=True)
    with java._maven("b"):
        assert environment.exists()
    with pytest.raises(EmbeddedError, match="check the network"):
        _write_half(half)
    with java._maven("c"):
        assert whole.exists()
        assert not half.exists()
        assert not environment.exists()


def _write_half(file: Path) -> None:
    with java._maven("c"):
        file.write_text("ha")
        raise ConnectionError
