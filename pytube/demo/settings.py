"""What the demonstration is set up with: its names and sizes, its folder, its workers' configurations."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Self

from pytube.embedded.binaries import reachable
from pytube.embedded.process import is_root
from pytube.errors import UsageError

Broker = Literal["embedded", "real"]
Election = Literal["neli", "lease"]
SinkType = Literal["jsonl", "opensearch", "redis", "kafka", "postgres"]

TUBE = "es-live"
PARTITIONS = 4
WORKERS = ("w1", "w2", "w3")

_FOLDER = Path(".demo")
_LOCK = "demo.lock"

_OUTBOX_MESSAGE_TIMEOUT = 2.0
_OUTBOX_SESSION_TIMEOUT = 6.0
"""Seconds: short, so that the take-over fits; what a dead worker had handed over has to be over then."""


class Folder:
    """The folder of this run alone, until it is closed: emptied at the start, kept at the end."""

    def __init__(self, path: Path | None = None) -> None:
        """Empty or make the folder `path`, by default `.demo`.

        Raises:
            UsageError: it holds what no demonstration left there, another one uses it, or it
                can't be written to.
        """
        self.path = (path or _default_folder()).resolve()
        self._lock = self._claim()
        self._empty()

    def close(self) -> None:
        """Let another demonstration have the folder."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _claim(self) -> IO[bytes]:
        path = self.path / _LOCK
        try:
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not path.exists() and any(self.path.iterdir()):
                raise UsageError(
                    f"{self.path} holds files that no demo has left there, and would be emptied; "
                    "give the demo a folder of its own"
                )
            lock = path.open("ab")
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
            if path.name == _LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _default_folder() -> Path:
    """`.demo`; for root, where the servers' user can't get there, one of the system's temporary ones."""
    here = _FOLDER.resolve()
    if not is_root() or reachable(here.parent):
        return here
    # Postgres refuses root, so it runs as a user who may not enter here.
    path = Path(tempfile.gettempdir()) / "pytube-demo"
    path.mkdir(mode=0o755, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.geteuid():
        raise UsageError(f"{path} is somebody else's; remove it, or run the demo as another user than root")
    return path


_TEMPLATE = """\
# Written by the demo.

[postgres]
dsn = {dsn}
{kafka}
[worker]
client_id = {name}
election = "{election}"
session_timeout = {session_timeout}
receive_deadline = 2.0
meter_interval = {meter_interval}
{serves}"""
_TUBE = """
[tube."{tube}".sink]
{sink}
"""
_OUTBOX = """
[outbox."{outbox}"]
bootstrap_servers = {bootstrap}
message_timeout = {message_timeout}
"""
_KAFKA = """
[kafka]
bootstrap_servers = {bootstrap}
"""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """What the configuration of a worker says about its sink."""

    options: Mapping[str, object]
    """The section of the sink."""
    session_timeout: float = 4.0
    """Seconds after which a dead worker's partitions go to others: short, so that the take-over fits, and at
    least 2 more than a request may take."""
    meter_interval: float = 5.0
    """How often the workers log what they did."""


def worker_settings(
    name: str, *, dsn: str, bootstrap: str | None, election: Election, sink: SinkSettings
) -> str:
    """The configuration file of the worker `name`, as a user would write it.

    Args:
        name: its client id.
        dsn: of the source.
        bootstrap: Kafka's bootstrap servers, None without Kafka.
        election: how the workers agree on who leads.
        sink: where the copy is.
    """
    return _TEMPLATE.format(
        dsn=_quoted(dsn),
        kafka="" if bootstrap is None else _KAFKA.format(bootstrap=_quoted(bootstrap)),
        name=_quoted(name),
        election=election,
        session_timeout=sink.session_timeout,
        meter_interval=sink.meter_interval,
        serves=_TUBE.format(
            tube=TUBE, sink="\n".join(f"{key} = {_toml(value)}" for key, value in sink.options.items())
        ),
    )


def outbox_settings(name: str, *, dsn: str, bootstrap: str, election: Election, outbox: str) -> str:
    """The configuration file of the worker `name` that delivers an outbox.

    Args:
        name: its client id.
        dsn: of the database.
        bootstrap: Kafka's bootstrap servers.
        election: how the workers agree on who leads.
        outbox: its name.
    """
    return _TEMPLATE.format(
        dsn=_quoted(dsn),
        kafka="" if election == "lease" else _KAFKA.format(bootstrap=_quoted(bootstrap)),
        name=_quoted(name),
        election=election,
        session_timeout=_OUTBOX_SESSION_TIMEOUT,
        meter_interval=5.0,
        serves=_OUTBOX.format(
            outbox=outbox, bootstrap=_quoted(bootstrap), message_timeout=_OUTBOX_MESSAGE_TIMEOUT
        ),
    )


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return _quoted(value)


def _quoted(value: object) -> str:
    # JSON that leaves non-ASCII as it is is TOML, where strings, numbers, flags and lists are concerned.
    return json.dumps(value, ensure_ascii=False)
