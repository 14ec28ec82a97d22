"""The sink `opensearch`: an index of OpenSearch or Elasticsearch, written by the bulk API.

`client` has the options and speaks HTTP, `index` creates and checks the index, `bulk` is the form
of requests and answers, and `sink` puts them together.
"""

from pytube.errors import ConfigError, how_to_install

try:
    from pytube.sinks.opensearch.sink import OpenSearchSink
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "aiohttp":
        raise
    needed = f'sink "opensearch" needs the package {error.name}'
    raise ConfigError(f"{needed}: {how_to_install('opensearch')}") from error

__all__ = ["OpenSearchSink"]
