"""A file, a pipe or the standard output that several processes append to.

Each block of lines is one write under an exclusive lock. In a file it is there whole or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from pytube.errors import ConfigError, PytubeError, SinkTimeout, SinkUnavailable

STDOUT = "-"

_TRANSIENT = {
    errno.EAGAIN,
    errno.EDQUOT,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
"""Errors that end on their own, or when space is freed; a wrong path does not."""


class AppendFile:
    """Appends blocks of lines. All methods block; each may be called from any thread."""

    def __init__(self, path: str, *, fsync: bool = True) -> None:
        self.path = path
        self._fsync = fsync
        self._fd: int | None = None
        # The threads of this process share the open file, so the lock on it does not exclude them.
        self._mutex = threading.Lock()
        self._closing = False

    def open(self) -> None:
        """Open or create the file.

        Raises:
            ConfigError: the path can't be right, or the file system has no locks.
            SinkUnavailable: it may work later.
        """
        try:
            with self._mutex:
                self._fd = self._open()
                self._check(self._fd)
        finally:
            if self._closing:  # by a caller that did not wait
                self._drop_when_free()

    def append(self, block: Callable[[], bytes]) -> None:
        """Wait for the lock, without limit, and write `block()` at the end, as separate lines.

        `block` is called under the lock, right before the write. It raises if the write must not
        begin any more.

        Raises:
            SinkUnavailable: nothing of the block is in the file.
            SinkTimeout: some of it may be.
        """
        try:
            with self._mutex:
                fd = self._locked()
                try:
                    self._write(fd, block())
                finally:
                    fcntl.flock(fd, fcntl.LOCK_UN)
        except OSError as error:
            raise self._unavailable(error) from error
        finally:
            if self._closing:
                self._drop_when_free()

    def close(self) -> None:
        """Close the file, or leave that to the thread that is using it; never waits."""
        self._closing = True
        self._drop_when_free()

    def _open(self) -> int:
        try:
            fd = _open_stdout() if self.path == STDOUT else _open_path(self.path)
        except (OSError, ValueError) as error:
            raise _explain(self.path, error) from error
        if self._fsync and self.path != STDOUT and _is_regular(fd):
            _sync_parent(self.path)
        return fd

    def _check(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
        except BlockingIOError:
            pass  # another process has the lock, so the file system has locks
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
                    # The path was right at `open`, so it may become right again.
                    raise SinkUnavailable(str(error)) from error
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if self.path == STDOUT or _is_at(self.path, self._fd):
                return self._fd
            self._drop()
        raise SinkUnavailable('sink "jsonl" is closed')

    def _write(self, fd: int, block: bytes) -> None:
        """One write; a second one only to learn why the first was short."""
        regular = _is_regular(fd)
        start = os.fstat(fd).st_size if regular else 0
        if start and os.pread(fd, 1, start - 1) != b"\n":
            block = b"\n" + block  # end the line that a killed process left torn
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
        # The thread that has the mutex checks `_closing` after it has released it.
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
    """Take back the last `written` bytes; False if another process wrote without the lock."""
    try:
        if os.fstat(fd).st_size != start + written:
            return False
        os.ftruncate(fd, start)
    except OSError:
        return False
    return True


def _is_regular(fd: int) -> bool:
    """Whether `fd` is a file, which can be read back, truncated and synced."""
    return stat.S_ISREG(os.fstat(fd).st_mode)


def _is_at(path: str, fd: int) -> bool:
    """Whether `path` still names the open file; after a rotation it does not."""
    try:
        named = Path(path).stat()
    except FileNotFoundError:
        return False
    held = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def _sync_parent(path: str) -> None:
    """Make the directory entry of a new file survive a crash of the machine."""
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _open_path(path: str) -> int:
    flags = os.O_APPEND | os.O_CLOEXEC
    try:
        special = not stat.S_ISREG(Path(path).stat().st_mode)
    except FileNotFoundError:
        special = False
    if not special:
        return os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o666)
    # Without O_NONBLOCK, opening a pipe without a reader would wait for one.
    fd = os.open(path, flags | os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(fd, True)
    return fd


def _open_stdout() -> int:
    """The standard output, opened again where that is possible.

    Processes started by one shell share one open file, so a lock on that file would exclude none of
    them. Opened again, each process has its own open file, and the lock separates them.
    """
    if _is_regular(1):
        # Other output of the process has another offset, and must not overwrite the lines.
        fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_APPEND)
    for flags in (os.O_RDWR, os.O_WRONLY) if _is_regular(1) else (os.O_WRONLY,):
        try:
            return os.open("/dev/stdout", flags | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            continue  # a socket, or a file that this user may not open by name
    return os.dup(1)


def _explain(path: str, error: OSError | ValueError) -> PytubeError:
    name = "the standard output" if path == STDOUT else f'path "{path}"'
    reason = error.strerror if isinstance(error, OSError) else str(error)
    number = error.errno if isinstance(error, OSError) else None
    if number in _TRANSIENT:
        return SinkUnavailable(f'sink "jsonl": {name} can\'t be opened: {reason}')
    if number == errno.ENXIO:
        return SinkUnavailable(f'sink "jsonl": {name} is a pipe that no process reads')
    hint = "give a file that this user can write to"
    if number == errno.EISDIR:
        hint = "give a file inside of it"
    elif number == errno.ENOENT and not Path(path).parent.is_dir():
        hint = f'create the directory "{Path(path).parent}"'
    return ConfigError(f'sink "jsonl": {name} can\'t be opened: {reason}; {hint}')
