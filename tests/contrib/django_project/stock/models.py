"""Parts in rooms."""

from django.db import models


class Room(models.Model):  # type: ignore[misc] # Django has no types
    """Where parts are."""


class Part(models.Model):  # type: ignore[misc] # Django has no types
    """Its fields had other names."""

    place = models.ForeignKey(Room, models.CASCADE)
    amount = models.IntegerField()
