"""The host of one worker: its wall clock is set, its machine is suspended, its disk is full."""

from __future__ import annotations

import resource
import struct
from pathlib import Path

import pytest

from tests.helpers.database import ROOT

_LESS_THAN_A_LINE = 100
"""Bytes."""

_LIBRARY = "faketime/libfaketimeMT.so.1"


class Clocks:
    """The clocks of one worker, given to it by its environment."""

    def __init__(self, folder: Path) -> None:
        self._wall = folder / "wall-clock"
        self._slept = folder / "machine-slept"
        self.set_wall_clock(0)
        self._slept.write_bytes(struct.pack("d", 0.0))

    @property
    def wall(self) -> dict[str, str]:
        """The environment by which a worker, and every library that it uses, lives by our wall clock."""
        return {
            "LD_PRELOAD": _library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._wall),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    @property
    def machine(self) -> dict[str, str]:
        """The environment by which a worker's machine can be suspended."""
        return {
            "MACHINE_SLEPT": str(self._slept),
            "PYTHONPATH": f"{ROOT / 'tests' / 'crash' / 'clocks'}:{ROOT}",
        }

    def set_wall_clock(self, seconds: int) -> None:
        """From now on it is ahead by so many seconds, or behind."""
        new = self._wall.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._wall)

    def sleep(self, seconds: float) -> None:
        """The machine was suspended for so long: its monotonic clock stood still."""
        with self._slept.open("r+b") as file:
            file.write(struct.pack("d", seconds))


def _library() -> str:
    """libfaketime; `.ci/system` installs it where it can."""
    for folder in Path("/usr/lib").glob("*"):
        if (folder / _LIBRARY).exists():
            return str(folder / _LIBRARY)
    for name in ("/usr/lib", "/usr/lib64", "/usr/local/lib"):
        if (Path(name) / _LIBRARY).exists():
            return str(Path(name) / _LIBRARY)
    pytest.fail(f"{_LIBRARY} was not found below /usr/lib; install it (Debian's package is libfaketime)")


class Disk:
    """Where the sink's file is; it can be filled, and given room again. `path` is what workers open."""

    def __init__(self, folder: Path, path: Path, *, limited: bool) -> None:
        """Args: limited: no file may grow, and a write is cut short; else a device that is always full."""
        self.file = folder / "disk.jsonl"
        self.file.touch()
        self._path = path
        self._limited = limited
        self._point_at(self.file)

    def fill(self, *pids: int) -> None:
        """No room for these processes, or but a little."""
        if self._limited:
            size = self.file.stat().st_size + _LESS_THAN_A_LINE
            for pid in pids:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        else:
            self._point_at(Path("/dev/full"))

    def free(self, *pids: int) -> None:
        """There is room again."""
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if not self._limited:
            self._point_at(self.file)

    @property
    def lines(self) -> int:
        """Lines in the file."""
        return self.file.read_bytes().count(b"\n")

    def _point_at(self, target: Path) -> None:
        new = self._path.with_suffix(".new")
        new.symlink_to(target)
        new.replace(self._path)
