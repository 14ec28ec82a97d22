"""Garbage collection in the processes of Spark's tasks."""

from __future__ import annotations

import gc


def freeze_imports() -> None:
    """Exclude all present objects from garbage collection: mostly modules, which stay loaded anyway.

    Spark collects garbage after each task and visits all objects each time. That takes 30 to 40 ms, as long
    as some tasks.
    """
    if not gc.get_freeze_count():
        gc.freeze()
