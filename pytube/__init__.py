"""pytube keeps copies of Postgres data equal to their source, and proves it."""

__version__ = "0.1.0"
