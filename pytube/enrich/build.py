"""Makes the enricher that the configuration asks for."""

from __future__ import annotations

from pytube.config import EnrichConfig
from pytube.db.session import SessionPool
from pytube.enrich.base import Enricher
from pytube.enrich.rows import RowEnricher
from pytube.enrich.touches import TouchEnricher


def build_enricher(config: EnrichConfig, tube: str, pool: SessionPool, answer_timeout: float) -> Enricher:
    """The enricher of one tube in this process; `answer_timeout` as for `RowEnricher`."""
    if config.mode == "none":
        return TouchEnricher()
    return RowEnricher(pool, tube, config.query, answer_timeout)
