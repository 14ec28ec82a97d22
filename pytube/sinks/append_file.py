"""A file that several processes append to: one write each time, under a lock, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable

from pytube.errors import ConfigError, SinkTimeout, SinkUnavailable
from pytube.sinks.output import STDOUT, is_at, is_regular, open_output, sync_parent


class AppendFile:
    """Appends blocks of lines. All methods block; each may be called from any thread."""

    def __init__(self, path: str, *, fsync: bool = True, create_parents: bool = False) -> None:
        self.path = path
        self._fsync = fsync
        self._create_parents = create_parents
        self._fd: int | None = None
        # A lock on the file lets every thread of this process in: they share the open file.
        self._mutex = threading.Lock()
        self._closing = False

    def open(self) -> None:
        """Open or create the file; `ConfigError` or `SinkUnavailable` as `open_output` says."""
        with self._mutex:
            self._fd = self._open()
            try:
                self._check(self._fd)
            except BaseException:
                self._drop()
                raise

    def append(self, begin: Callable[[], None], block: Callable[[], bytes]) -> None:
        """Write `block()` at the end, on a line of its own.

        `begin` is called under the lock, right before the write, and raises when it may not be
        done any more. The lock is waited for without limit.

        Raises:
            SinkUnavailable: nothing of it is in the file.
            SinkTimeout: some of it may be.
        """
        try:
            with self._mutex:
                fd = self._locked()
                try:
                    begin()
                    self._write(fd, block())
                finally:
                    fcntl.flock(fd, fcntl.LOCK_UN)
        except OSError as error:
            raise self._unavailable(error) from error
        finally:
            if self._closing:
                self._drop_when_free()

    def close(self) -> None:
        """Let go of the file, or leave that to the thread that is using it; never waits."""
        self._closing = True
        self._drop_when_free()

    def _open(self) -> int:
        fd = open_output(self.path, create_parents=self._create_parents)
        if self._fsync and self.path != STDOUT and is_regular(fd):
            sync_parent(self.path)
        return fd

    def _check(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
        except BlockingIOError:
            pass  # somebody has the lock, so there are locks
        except OSError as error:
            raise ConfigError(
                f'sink "jsonl": "{self.path}" can\'t be locked: {error.strerror}; '
                "use a file system that has flock"
            ) from error

    def _locked(self) -> int:
        """The descriptor, with the lock held on the file that `path` names now."""
        while not self._closing:
            if self._fd is None:
                try:
                    self._fd = self._open()
                except ConfigError as error:
                    # It was right at `open`, so it may become right again.
                    raise SinkUnavailable(str(error)) from error
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if self.path == STDOUT or is_at(self.path, self._fd):
                return self._fd
            self._drop()
        raise SinkUnavailable('sink "jsonl" is closed')

    def _write(self, fd: int, block: bytes) -> None:
        """One write; a second only to learn why the first was short."""
        regular = is_regular(fd)
        start = os.fstat(fd).st_size if regular else 0
        if start and os.pread(fd, 1, start - 1) != b"\n":
            block = b"\n" + block  # ends the line that a killed process left unfinished
        rest = memoryview(block)
        try:
            while rest:
                rest = rest[os.write(fd, rest) :]
            if self._fsync and regular:
                os.fdatasync(fd)
        except OSError as error:
            written = len(block) - len(rest)
            if written and not (regular and _cut(fd, start, written)):
                raise SinkTimeout(
                    f'sink "jsonl": {written} of {len(block)} bytes went to "{self.path}" and '
                    f"can't be taken back: {error.strerror}"
                ) from error
            raise

    def _unavailable(self, error: OSError) -> SinkUnavailable:
        return SinkUnavailable(
            f'sink "jsonl": "{self.path}" could not be written: {error.strerror}; '
            "nothing of the batch is in it"
        )

    def _drop_when_free(self) -> None:
        # Whoever has the mutex looks at `_closing` after giving it back.
        if self._mutex.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._mutex.release()

    def _drop(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


def _cut(fd: int, start: int, written: int) -> bool:
    """Take back the last `written` bytes; False when somebody else wrote without the lock."""
    try:
        if os.fstat(fd).st_size != start + written:
            return False
        os.ftruncate(fd, start)
    except OSError:
        return False
    return True
