"""Takes up the configuration file of a running worker: at a signal, and when the file has changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Protocol, TypeAlias

from pytube.config import Config
from pytube.errors import PytubeError
from pytube.events import ConfigRefused, DocumentRefused, Event
from pytube.logs import Logger, is_news
from pytube.threads import in_thread
from pytube.worker.changes import Changes

_LOOK_INTERVAL = 1.0
"""Seconds between two looks at the file. It is taken up when two in a row see the same."""
_LONGEST_PAUSE = 5.0
"""Seconds after which a file is tried again that was refused: `pytube apply` may have run, say."""

Load: TypeAlias = Callable[[], tuple[Config, Mapping[str, PytubeError]]]
"""Reads the file, and compiles its documents: the configuration, and by name why a document is not in it."""


class Served(Protocol):
    """The worker."""

    async def take_up(self, config: Config, refused: Collection[str]) -> Changes:
        """Serve by another configuration; `refused`: documents that are not in it, as they can't be made."""

    def documents_stand(self) -> bool:
        """Whether a declared document can't be read."""


class Reloader:
    """Loads the file again and again, and has the worker take it up."""

    def __init__(
        self,
        worker: Served,
        load: Load,
        emit: Callable[[Event], None],
        watched: Path | None = None,
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """Begins nothing.

        Args:
            worker: takes the file up.
            load: called in a thread.
            emit: receives an event when the file is refused, or a document of it.
            watched: the file, if it is taken up whenever it has changed; else that is done by `ask` alone.
            refused: documents that were refused at the start, and why.
        """
        self._worker = worker
        self._load = load
        self._emit = emit
        self._watched = watched
        self._asked = asyncio.Event()
        self._log = Logger("pytube.worker")
        self._told: dict[object, str] = dict((refused or {}).items())
        """Why the file was refused, by None, and why a document was, by its name."""

    def ask(self) -> None:
        """Take the file up now, whether or not it has changed."""
        self._asked.set()

    async def run(self) -> None:
        """Follow the file until cancelled."""
        seen, taken, tries = "", "", 0
        due = float("-inf")
        clock = asyncio.get_running_loop().time
        while True:
            if await self._wait():
                self._told.clear()  # who asks wants an answer, though it be the same as before
                if not await self._try() and not self._told:
                    self._log.info("config_unchanged")
                continue
            before, seen = seen, await in_thread(self._fingerprint)
            is_new = bool(seen) and seen == before and seen != taken
            is_due = clock() >= due and (bool(self._told) or self._worker.documents_stand())
            if is_new or is_due:
                tries = 0 if is_new else tries + 1
                taken = seen
                await self._try()
                pause = min(_LONGEST_PAUSE, 2.0**tries)
                due = clock() + pause * random.uniform(0.75, 1.25)  # noqa: S311 # spreads load only

    async def _wait(self) -> bool:
        """Wait until the file is to be looked at; whether a signal asked for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if self._watched is None else _LOOK_INTERVAL):
                await self._asked.wait()
        asked = self._asked.is_set()
        self._asked.clear()
        return asked

    def _fingerprint(self) -> str:
        """Of the content of the file; empty while it can't be read, as it is being replaced, say."""
        assert self._watched is not None
        try:
            return sha256(self._watched.read_bytes()).hexdigest()
        except OSError:
            return ""

    async def _try(self) -> bool:
        """Take the file up; whether anything has changed. A refusal is logged once."""
        try:
            config, refused = await in_thread(self._load)
            changes = await self._worker.take_up(config, refused)
        except Exception as error:  # noqa: BLE001 # whatever is wrong with the file, the worker continues
            reason = str(error) if isinstance(error, PytubeError) else f"{type(error).__name__}: {error}"
            if is_news(self._told, None, reason):
                self._emit(ConfigRefused(reason))
            return False
        for name in self._told.keys() - refused.keys():
            del self._told[name]
        for name, why in refused.items():
            if is_news(self._told, name, str(why)):
                self._emit(DocumentRefused(name, str(why)))
        return bool(changes)
