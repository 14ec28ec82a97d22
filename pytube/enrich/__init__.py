"""Enrich: from keys to the current documents, by re-reading the source."""

from pytube.enrich.base import Enricher, Read
from pytube.enrich.rows import build_enricher

__all__ = ["Enricher", "Read", "build_enricher"]
