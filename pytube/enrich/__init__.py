"""Enrich: from keys to the current documents, by re-reading the source."""

from pytube.enrich.rows import Enricher, Read, build_enricher

__all__ = ["Enricher", "Read", "build_enricher"]
