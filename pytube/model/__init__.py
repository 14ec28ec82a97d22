"""The words of the system as values: pods, documents, tokens, shards. No I/O, no decisions."""

from pytube.model.document import Batch, Document, Documents
from pytube.model.heartbeat import Heartbeat
from pytube.model.key import Id, Key, KeyType
from pytube.model.pod import Pod, PodClass
from pytube.model.result import OK, Ok, Reject, Result, Retry, Stale
from pytube.model.shard import ids_in, partition_of, shard_of
from pytube.model.token import COUNTER_BITS, Token

__all__ = [
    "COUNTER_BITS",
    "OK",
    "Batch",
    "Document",
    "Documents",
    "Heartbeat",
    "Id",
    "Key",
    "KeyType",
    "Ok",
    "Pod",
    "PodClass",
    "Reject",
    "Result",
    "Retry",
    "Stale",
    "Token",
    "ids_in",
    "partition_of",
    "shard_of",
]
