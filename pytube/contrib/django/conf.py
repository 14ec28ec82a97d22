"""The setting `PYTUBE`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


@dataclass(frozen=True, slots=True)
class Options:
    """`PYTUBE = {…}` in the project's settings; none is required."""

    schema: str = "tube"
    """Where pytube's SQL is."""
    database: str = "default"
    """The alias of its database in `DATABASES`; migrations of other databases leave pytube out."""
    config: str | None = None
    """The path of `pytube.toml`, for documents of the file and for the system check."""


def options() -> Options:
    """The setting as it is now.

    Raises:
        ImproperlyConfigured: it has keys that are not known.
    """
    given = getattr(settings, "PYTUBE", {})
    known = {field.name for field in fields(Options)}
    if unknown := sorted(set(given) - known):
        raise ImproperlyConfigured(
            f"PYTUBE[{unknown[0]!r}] is not known; the keys are {', '.join(sorted(known))}"
        )
    config = given.get("config")
    return Options(**{**given, "config": None if config is None else str(config)})
