"""The sink `opensearch`: an index of OpenSearch or Elasticsearch, written by the bulk API.

`options` says what can be set, `client` speaks HTTP, `index` creates and checks the index, `bulk` is the form
of requests and answers, and `sink` puts them together.
"""

from pytube.errors import ConfigError

try:
    from pytube.sinks.opensearch.sink import OpenSearchSink
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in {"opensearchpy", "aiohttp"}:
        raise
    raise ConfigError(
        'the sink "opensearch" needs its client: pip install "pytube-pg[opensearch]"'
    ) from error

__all__ = ["OpenSearchSink"]
