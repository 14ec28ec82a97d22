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
    is_named: bool
    """Whether the file was named, by the option or the variable; else it may be missing."""
    is_option: bool
    """Whether `--config` named it."""
    debug: bool

    def config(self) -> Config:
        """The configuration; `ConfigError` says what is wrong with it."""
        # Here, because its models take longer to load than `--help` takes to print.
        from pytube.config import load

        return load(self.path)

    @property
    def has_file(self) -> bool:
        """Whether there is a configuration file; `ConfigError` if one was named that is not there."""
        if not self.path.exists():
            if self.is_named:
                self.config()
            return False
        return True
