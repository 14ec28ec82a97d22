"""A project of Django with pytube in it."""
