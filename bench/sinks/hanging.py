"""A sink that hangs as long as a file is there, and takes everything else at once."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pytube.model import Batch

_PAUSE = 0.02


def hang(_: Batch) -> None:
    """Return when the file `$BENCH_STAMPS.hang` is not, or no more, there."""
    file = Path(os.environ["BENCH_STAMPS"] + ".hang")
    while file.exists():
        time.sleep(_PAUSE)
