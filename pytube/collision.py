"""Another distribution has a package `pytube`, too: `pytube`, a video downloader. This one is `pytube-pg`.

Installed in one environment, each overwrites `__init__.py` and `__main__.py` of the other, and whichever is
uninstalled removes them. The rest can be imported in part, and fails later with a riddle. So four
modules look for the other distribution: `pytube`, `pytube.errors`, which nearly all others import, the
command line, and `pytube.streams`, which theirs would import.
"""

from __future__ import annotations

import os
import sys

DISTRIBUTION = "pytube-pg"
"""pytube-pg's `__init__` has it, and the other one has not."""

_THEIRS = __file__.removesuffix("collision.py") + "cli.py"
"""A file of the other one; pytube-pg has a folder `cli`."""


def find_collision() -> str | None:
    """The fault and its remedy, in a sentence; None if the package is pytube-pg's alone."""
    is_ours = getattr(sys.modules["pytube"], "DISTRIBUTION", None) == DISTRIBUTION
    if is_ours and not os.access(_THEIRS, os.F_OK):
        return None
    folder = _THEIRS.removesuffix("/cli.py")
    return (
        "the distribution pytube, a video downloader, has overwritten or removed files of "
        f"{DISTRIBUTION} in {folder}; run `pip uninstall pytube {DISTRIBUTION}`, reinstall {DISTRIBUTION}, "
        "and install the downloader in a separate environment"
    )


def refuse_collision() -> None:
    """Raise `ImportError` if the package is not pytube-pg's alone."""
    if (collision := find_collision()) is not None:
        raise ImportError(collision)
