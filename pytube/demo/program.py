"""Runs a demonstration from start to end, and ends all that it started."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import psycopg

from pytube import logs
from pytube.demo.failure import Interrupted
from pytube.demo.folder import Folder
from pytube.demo.interrupt import interruptible
from pytube.demo.report import report
from pytube.demo.screen import Screen
from pytube.demo.servers import Broker, Servers
from pytube.demo.story import Story
from pytube.errors import PytubeError


def run(*, kafka: Broker, election: Literal["neli", "lease"], seconds: float, directory: Path | None) -> int:
    """See `pytube.demo.main`."""
    screen = Screen()
    try:
        with interruptible(), Folder(directory) as folder, folder.log.open("a") as log:
            # What our own code logs in this process is none of the spectators' business.
            logs.configure("info", "human", log)
            return _run(folder, kafka if election == "neli" else None, election, seconds, screen)
    except Interrupted as interrupted:
        name = signal.Signals(interrupted.number).name
        screen.line("")
        screen.step(f"ended by {name}; all that was started is ended")
        return 128 + interrupted.number


def _run(folder: Folder, broker: Broker | None, election: str, seconds: float, screen: Screen) -> int:
    began = time.time()
    try:
        with ExitStack() as stack:
            servers = stack.enter_context(Servers(folder.path, broker))
            screen.step(f"{servers.names}; election: {election}")
            story = Story(folder, servers, election, screen, stack)
            found = story.play(seconds)
            screen.step("done")
    except (PytubeError, psycopg.Error, OSError) as error:
        screen.line("")
        screen.line(f"FAILED: {error}", "bold red")
        screen.line(f"All processes are ended; their logs are kept in {folder.path}")
        return 1
    return report(found, began=began, directory=folder.path, screen=screen)
