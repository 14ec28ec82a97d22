"""The sink `opensearch`: an index of OpenSearch or Elasticsearch, written by the bulk API.

`client` has the options and speaks HTTP, `index` creates and checks the index, `bulk` is the form
of requests and answers, and `sink` puts them together.
"""

from pytube.sinks.opensearch.sink import OpenSearchSink

__all__ = ["OpenSearchSink"]
