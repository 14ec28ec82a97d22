"""Opening what lines are appended to: a file, a pipe, a device, or the standard output."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from pytube.errors import ConfigError, PytubeError, SinkUnavailable

STDOUT = "-"

_PASSING = {
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
"""Reasons that go away by themselves or by freeing something, unlike a wrong path."""


def open_output(path: str, *, create_parents: bool) -> int:
    """A descriptor to append to `path`, or to the standard output for "-".

    Raises `ConfigError` when the path can't be right, `SinkUnavailable` when it may work later.
    """
    try:
        if path == STDOUT:
            return _open_stdout()
        if create_parents:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        return _open_path(path)
    except (OSError, ValueError) as error:
        raise _explain(path, error) from error


def is_regular(fd: int) -> bool:
    """Whether `fd` is a file, so that it can be read back, cut off and synced."""
    return stat.S_ISREG(os.fstat(fd).st_mode)


def is_at(path: str, fd: int) -> bool:
    """Whether `path` still names the open file, and not another one after a rotation."""
    try:
        named = Path(path).stat()
    except FileNotFoundError:
        return False
    held = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def sync_parent(path: str) -> None:
    """Make the directory entry of a file that may be new survive a crash of the machine."""
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
    # Without O_NONBLOCK, opening a pipe that nobody reads would wait for a reader.
    fd = os.open(path, flags | os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(fd, True)
    return fd


def _open_stdout() -> int:
    """The standard output, opened anew where that can be done.

    Processes started by one shell share one open file, and a lock on that would let all of them
    in. Opened anew, each has its own, and the lock keeps them apart.
    """
    if is_regular(1):
        # What else is printed must not overwrite the lines from an offset of its own.
        fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_APPEND)
    for flags in (os.O_RDWR, os.O_WRONLY) if is_regular(1) else (os.O_WRONLY,):
        try:
            return os.open("/dev/stdout", flags | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            continue  # a socket, or a file that this user may not open by name
    return os.dup(1)


def _explain(path: str, error: OSError | ValueError) -> PytubeError:
    name = "the standard output" if path == STDOUT else f'path "{path}"'
    reason = error.strerror if isinstance(error, OSError) else str(error)
    number = error.errno if isinstance(error, OSError) else None
    if number in _PASSING:
        return SinkUnavailable(f'sink "jsonl": {name} can\'t be opened: {reason}')
    if number == errno.ENXIO:
        return SinkUnavailable(f'sink "jsonl": {name} is a pipe that nobody reads')
    hint = "give a file that this user can write to"
    if number == errno.EISDIR:
        hint = "give a file inside of it"
    elif number == errno.ENOENT and not Path(path).parent.is_dir():
        hint = f'create the directory "{Path(path).parent}", or set create_parents = true'
    return ConfigError(f'sink "jsonl": {name} can\'t be opened: {reason}; {hint}')
