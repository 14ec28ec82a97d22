"""The folder of a demonstration: emptied at the start, kept at the end."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pytube.embedded.binaries import reachable
from pytube.embedded.process import is_root
from pytube.errors import UsageError

DEFAULT = Path(".demo")
_MARK = "demo.lock"


class Folder:
    """A folder that belongs to this run alone until it is closed."""

    def __init__(self, path: Path | None = None) -> None:
        """Empty or make the folder `path`, by default `.demo`.

        Raises:
            UsageError: it holds what no demonstration left there, another one uses it, or it
                can't be written to.
        """
        self.path = (path or _default()).resolve()
        self._lock = self._claim()
        self._empty()
        self.sink = self.path / "sink.jsonl"
        self.log = self.path / "demo.log"

    def worker_settings(self, name: str) -> Path:
        """The configuration of one worker."""
        return self.path / f"{name}.toml"

    def worker_log(self, name: str) -> Path:
        """What one worker tells."""
        return self.path / f"{name}.log"

    def close(self) -> None:
        """Let another demonstration have the folder."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _claim(self) -> IO[bytes]:
        mark = self.path / _MARK
        try:
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not mark.exists() and any(self.path.iterdir()):
                raise UsageError(
                    f"{self.path} holds files that no demo has left there, and would be emptied; "
                    "give the demo a folder of its own"
                )
            lock = mark.open("ab")
        except OSError as error:
            raise UsageError(
                f"{self.path} can't be used for the demo: {error.strerror}; "
                "go to a folder that you can write to"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise UsageError(f"another demo runs in {self.path}; wait for it, or end it") from None
        return lock

    def _empty(self) -> None:
        for path in self.path.iterdir():
            if path.name == _MARK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _default() -> Path:
    """`.demo`; for root, where the servers' user can't get there, one of the system's temporary ones."""
    here = DEFAULT.resolve()
    if not is_root() or reachable(here.parent):
        return here
    # Postgres refuses root, so it runs as a user who may not enter here.
    path = Path(tempfile.gettempdir()) / "pytube-demo"
    path.mkdir(mode=0o755, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.geteuid():
        raise UsageError(f"{path} is somebody else's; remove it, or run the demo as another user than root")
    return path
