"""The app."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import Tags, register


class PytubeConfig(AppConfig):  # type: ignore[misc] # Django has no types
    """It has no models; it registers the system check."""

    name = "pytube.contrib.django"
    label = "pytube"

    def ready(self) -> None:
        """Register the check."""
        from pytube.contrib.django.checks import check_database

        register(check_database, Tags.database)
