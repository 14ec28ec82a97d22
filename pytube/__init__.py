"""pytube keeps copies of Postgres data equal to their source, and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytube.collision import DISTRIBUTION as DISTRIBUTION
from pytube.collision import refuse_collision

if TYPE_CHECKING:
    from pytube.config import Config
    from pytube.delivered import wait, wait_async
    from pytube.errors import KeysParked, WaitTimeout
    from pytube.worker import Worker

__all__ = ["Config", "KeysParked", "WaitTimeout", "Worker", "__version__", "wait", "wait_async"]
__version__ = "0.1.0"

refuse_collision()

_HOMES = {
    "Config": "pytube.config",
    "KeysParked": "pytube.errors",
    "WaitTimeout": "pytube.errors",
    "Worker": "pytube.worker",
    "wait": "pytube.delivered",
    "wait_async": "pytube.delivered",
}
"""What the package offers, imported when it is first used: it takes longer to load than the rest."""

# Hidden from type checkers, which would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
