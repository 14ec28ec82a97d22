"""The global options of the program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytube.config import Config


@dataclass(frozen=True, slots=True)
class Settings:
    """The global options."""

    path: Path
    debug: bool

    def config(self) -> Config:
        """The configuration; `ConfigError` says what is wrong with it."""
        # Here, because its models take longer to load than `--help` takes to print.
        from pytube.config import load

        return load(self.path)
