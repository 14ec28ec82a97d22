"""pytube keeps copies of Postgres data equal to their source, and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytube.collision import DISTRIBUTION as DISTRIBUTION
from pytube.collision import refuse_collision

if TYPE_CHECKING:
    from pytube.config import Config
    from pytube.delivered import wait, wait_async
    from pytube.worker import Worker

__all__ = ["Config", "Worker", "__version__", "wait", "wait_async"]
__version__ = "0.1.0"

refuse_collision()


def __getattr__(name: str) -> Any:
    """What the package offers, imported when it is first used: it takes longer to load than the rest."""
    if name == "Worker":
        from pytube.worker import Worker

        return Worker
    if name == "Config":
        from pytube.config import Config

        return Config
    if name in ("wait", "wait_async"):
        from pytube import delivered

        return getattr(delivered, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
