"""Enrich: from keys to the current documents, by re-reading the source."""

from pytube.enrich.rows import Enricher, Read

__all__ = ["Enricher", "Read"]
