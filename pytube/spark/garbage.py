"""The garbage collection of a task's process."""

from __future__ import annotations

import gc


def spare_imports() -> None:
    """Have it pass over all that is there by now: mostly modules, which stay anyway.

    Spark collects garbage after each task, and looks at all objects each time. That takes 30 to 40 ms, as
    long as some tasks.
    """
    if not gc.get_freeze_count():
        gc.freeze()
