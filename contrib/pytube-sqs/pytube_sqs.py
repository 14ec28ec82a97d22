"""A sink of pytube: changes as messages of an Amazon SQS FIFO queue, in order for each key.

[tube."es-live".sink]
type = "sqs"
queue_url = "https://sqs.eu-central-1.amazonaws.com/123456789012/shop.fifo"
region = "eu-central-1"
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self
from urllib.parse import urlsplit

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoRegionError,
)
from pydantic import Field

from pytube.errors import ConfigError, SinkError, SinkTimeout, SinkUnavailable
from pytube.model import OK, Batch, Document, Reject, Result, Retry
from pytube.sinks import SinkOptions
from pytube.sinks.base import Abandoned, in_groups, refuse_lapsed
from pytube.sinks.jsonl import envelopes

WHO = 'sink "sqs"'
_MOST_OF_A_REQUEST = 10
_LARGEST = 256 * 1024
"""Bytes of a message where the queue does not say: ElasticMQ."""
_PAUSE = 1.0
_OF_THE_BODY = re.compile(
    "InvalidMessageContents|InvalidParameterValue|BatchRequestTooLong|InvalidAttributeValue"
)
"""In codes by which a request is refused for its messages."""
_ESCAPED = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}
"""Characters that SQS refuses. In JSON they stand in texts only, and may be written so."""
_GROUP = re.compile(r"[!-~]{1,128}")


class SqsOptions(SinkOptions):
    """What `[tube.NAME.sink]` may hold. Credentials are those of the environment, a profile, or a role."""

    queue_url: str = Field(
        pattern=r"^https?://[^/@]+/.+\.fifo$", description='the URL of a FIFO queue, "https://….fifo"'
    )
    region: str | None = Field(default=None, min_length=1, description='a region, as "eu-central-1"')
    concurrency: int = Field(default=8, ge=1, description="a number of requests at once, 1 or more")
    connect_timeout: float = Field(default=3.0, gt=0, description="a number of seconds above 0")
    timeout: float = Field(default=5.0, gt=0, description="a number of seconds above 0")


@dataclass(frozen=True, slots=True)
class Message:
    """A document on its way."""

    position: int
    """In the batch."""
    body: str
    size: int
    key: str
    token: str

    @classmethod
    def of(cls, position: int, batch: Batch, document: Document, line: bytes) -> Self:
        """The message of a document whose JSON is `line`."""
        key = f"{batch.tube}:{document.shard}:{document.id}"
        body = line.decode("utf-8", "surrogatepass").translate(_ESCAPED)
        return cls(position, body, len(body.encode("utf-8", "surrogatepass")), key, str(document.token))

    def entry(self, number: int) -> dict[str, str]:
        """As a request has it. The same key and token twice within five minutes are one message."""
        digest = hashlib.sha256(self.key.encode()).hexdigest()
        return {
            "Id": str(number),
            "MessageBody": self.body,
            "MessageGroupId": self.key if _GROUP.fullmatch(self.key) else digest,
            "MessageDeduplicationId": f"{digest}:{self.token}",
        }


@cache
def session() -> AioSession:
    """One for all sinks: it keeps the description of the API, which takes long to read."""
    return get_session()


class SqsSink:
    """A message per document, also per delete. A queue can't compare tokens; each message has its own.

    A request is never given up before its time is over, and never repeated: `abandon` waits for it.
    """

    compares = False

    def __init__(self, options: SqsOptions) -> None:
        self._options = options
        self.write_timeout = options.connect_timeout + options.timeout
        """See `pytube.sinks.base.Bounded`."""
        self._client: Any = None
        self._largest = 0
        """Bytes of a message, and of a request."""
        self._requests: Counter[Any] = Counter()
        """Under way, by client: one that is closed meanwhile is kept until they have ended."""
        self._abandoned = Abandoned()

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        return cls(SqsOptions.parse("sqs", options))

    async def open(self) -> None:
        """Find the queue, and how large its messages may be."""
        if self._client is not None:
            return
        options, url = self._options, urlsplit(self._options.queue_url)
        config = AioConfig(
            connect_timeout=options.connect_timeout,
            read_timeout=options.timeout,
            max_pool_connections=options.concurrency,
            retries={"total_max_attempts": 1},
        )
        try:
            made = session().create_client(
                "sqs",
                region_name=options.region,
                endpoint_url=f"{url.scheme}://{url.netloc}",
                config=config,
            )
            client = await made.__aenter__()
        except (NoRegionError, ValueError) as error:
            raise ConfigError(f'{WHO}: option "region": {error}') from error
        try:
            found = await client.get_queue_attributes(
                QueueUrl=options.queue_url, AttributeNames=["MaximumMessageSize"]
            )
        except BaseException as error:
            await client.close()
            if isinstance(error, BotoCoreError | ClientError | OSError):
                raise SinkUnavailable(f"{WHO}: {options.queue_url}: {error}") from error
            raise
        self._largest = int(found.get("Attributes", {}).get("MaximumMessageSize", _LARGEST))
        self._client = client

    async def close(self) -> None:
        """Begin no more requests; the client is closed after the ones that have begun."""
        client, self._client = self._client, None
        if client is not None and not self._requests[client]:
            await client.close()

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Send ten messages a request, some requests side by side: each key is in one of them."""
        client = self._client
        if client is None:
            raise SinkUnavailable(f"{WHO} is not open")
        results: list[Result | SinkError] = [OK] * len(batch)
        slots = asyncio.Semaphore(self._options.concurrency)

        async def post(messages: Sequence[Message]) -> None:
            async with slots:
                try:
                    answers: Sequence[Result | SinkError] = await self._post(client, batch, messages)
                except SinkError as error:
                    answers = [error] * len(messages)
            for message, answer in zip(messages, answers, strict=True):
                results[message.position] = answer

        # As many bytes for each that no more than ten fit in.
        least = self._largest // _MOST_OF_A_REQUEST
        fitting = self._fitting(batch, results)
        groups = in_groups(fitting, lambda message: max(message.size, least), self._largest)
        await asyncio.gather(*map(post, groups))
        return _answers(results)

    async def abandon(self, batch: Batch) -> None:
        """Wait for the requests of the batch that were not answered when it was cancelled."""
        await self._abandoned.over(batch)

    def _fitting(self, batch: Batch, results: list[Result | SinkError]) -> Iterator[Message]:
        """The messages; those that are too large get their result here."""
        for position, (document, (head, body)) in enumerate(
            zip(batch, envelopes(batch.tube, batch.documents), strict=True)
        ):
            message = Message.of(position, batch, document, b'%b,"doc":%b}' % (head, body))
            if message.size <= self._largest:
                yield message
                continue
            results[position] = Reject(
                f"{WHO}: the message has {message.size} bytes, and the queue takes {self._largest}"
            )

    async def _post(self, client: Any, batch: Batch, messages: Sequence[Message]) -> Sequence[Result]:
        if client is not self._client:
            raise SinkUnavailable(f"{WHO} is closed")
        refuse_lapsed(WHO, batch)
        request = asyncio.ensure_future(self._request(client, messages))
        try:
            answer = await asyncio.shield(request)
        except asyncio.CancelledError:
            self._abandoned.add(batch, request)
            raise
        except ClientError as error:
            raise _refused(error) from error
        except (ConnectTimeoutError, EndpointConnectionError) as error:
            raise SinkUnavailable(f"{WHO}: {error}") from error
        except (HTTPClientError, OSError) as error:
            raise SinkTimeout(f"{WHO}: {error}; it may have taken the messages or not") from error
        except BotoCoreError as error:  # no credentials, and the like: nothing was sent
            raise SinkUnavailable(f"{WHO}: {error}") from error
        failed = {int(one["Id"]): one for one in answer.get("Failed", ())}
        return [_result(failed.get(number)) for number in range(len(messages))]

    async def _request(self, client: Any, messages: Sequence[Message]) -> Mapping[str, Any]:
        entries = [message.entry(number) for number, message in enumerate(messages)]
        self._requests[client] += 1
        try:
            answer: Mapping[str, Any] = await client.send_message_batch(
                QueueUrl=self._options.queue_url, Entries=entries
            )
            return answer
        finally:
            self._requests[client] -= 1
            if client is not self._client and not self._requests[client]:
                await client.close()


def _result(failed: Mapping[str, Any] | None) -> Result:
    if failed is None:
        return OK
    said = f"{WHO}: {failed['Code']}: {failed.get('Message', 'no reason was given')}"
    return Reject(said) if failed["SenderFault"] else Retry(_PAUSE, said)


def _refused(error: ClientError) -> SinkError:
    """A request that was answered with an error."""
    status = error.response["ResponseMetadata"].get("HTTPStatusCode", 500)
    if status >= 500:
        return SinkTimeout(f"{WHO}: {error}; it may have taken the messages or not")
    if _OF_THE_BODY.search(error.response["Error"]["Code"]):
        return SinkError(f"{WHO}: {error}")
    return SinkUnavailable(f"{WHO}: {error}")


def _answers(results: Sequence[Result | SinkError]) -> list[Result]:
    """The results of a batch; raises what concerns all of it.

    An unknown outcome comes first: these keys must wait for `abandon`. The worker sends a refused request
    again in halves, until one document stands alone.
    """
    troubles = [one for one in results if isinstance(one, SinkError)]
    if unknown := [one for one in troubles if isinstance(one, SinkTimeout)]:
        raise unknown[0]
    refused = [one for one in troubles if not isinstance(one, SinkUnavailable)]
    if refused and len(results) > 1:
        raise refused[0]
    if refused:
        return [Reject(str(refused[0]))]
    if troubles and len(troubles) == len(results):
        raise troubles[0]
    return [Retry(_PAUSE, str(one)) if isinstance(one, SinkError) else one for one in results]
