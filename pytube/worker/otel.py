"""Traces of batches through OpenTelemetry.

Each batch is a separate trace: from the exchange that marked its pods to the exchange that purges them. An
exchange marks and purges pods of many batches, so it has a trace, too. A batch links to the
exchanges that brought its pods; a batch that is sent again links to the first try.

No span holds a document, a key, or the text of an error, which may quote either: the class names an error.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode
from opentelemetry.util.types import AttributeValue

import pytube
from pytube.errors import ConfigError
from pytube.model import Documents, Id, Pod
from pytube.pipeline.inflight import Flight, InFlight
from pytube.sources.terms import Term
from pytube.threads import in_thread
from pytube.worker.metrics import BatchTrace, PartitionTraces, Step, Tracing

_CLOSE_TIMEOUT = 5.0
"""Seconds that a worker which stops gives its last spans; a collector that is down must not keep it."""
_FINE = {"delivered", "skipped", "delayed", "unsent"}
"""Outcomes that are not errors of the batch. Where keys are unsent because something is down, the step that
found it down has the error."""


# --- the process --------------------------------------------------------------------------------


class OpenTelemetry(Tracing):
    """Makes spans by a tracer."""

    def __init__(self, tracer: trace.Tracer, own: TracerProvider | None = None) -> None:
        """`own`: the provider that is to be shut down with the worker."""
        self._tracer = tracer
        self._own = own

    @classmethod
    def build(cls, setting: bool | str, client_id: str) -> Self:
        """The tracer of the program that embeds the worker, if it has one; else a new one.

        An endpoint always gets a new tracer.
        """
        ours: TracerProvider | None = None
        provider = trace.get_tracer_provider()
        if isinstance(setting, str) or isinstance(provider, trace.ProxyTracerProvider):
            try:
                provider = ours = _provider(setting, client_id)
            except (ValueError, OSError) as error:
                raise ConfigError(f"traces can't be sent as the variables OTEL_… say: {error}") from error
        return cls(provider.get_tracer("pytube", pytube.__version__), ours)

    def partition(self, term: Term) -> PartitionTraces:
        return TermTraces(self._tracer, term)

    async def close(self) -> None:
        provider, self._own = self._own, None
        if provider is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await in_thread(provider.shutdown)


def _provider(setting: bool | str, client_id: str) -> TracerProvider:
    """A provider that sends spans by OTLP over HTTP, as the variables `OTEL_…` say."""
    ours = {"service.name": "pytube", "service.version": pytube.__version__, "service.instance.id": client_id}
    resource = Resource.create(ours).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if _wants_export():
        endpoint = f"{setting.rstrip('/')}/v1/traces" if isinstance(setting, str) else None
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
    return provider


def _wants_export() -> bool:
    """Whether the variables that choose an exporter leave this one enabled."""
    exporter = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if exporter not in ("otlp", "none"):
        raise ConfigError(f'OTEL_TRACES_EXPORTER: expected "otlp" or "none", got "{exporter}"')
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(name)
        if protocol:
            if protocol != "http/protobuf":
                raise ConfigError(
                    f'{name}: expected "http/protobuf", got "{protocol}"; traces are sent over HTTP only'
                )
            break  # the first one has precedence
    return exporter == "otlp"


# --- a term -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Exchange:
    """An exchange that has ended; nanoseconds of Unix time."""

    span: SpanContext
    began: int
    ended: int


class TermTraces(PartitionTraces):
    """The traces of one term: which exchange brought each pod, and which batches are open."""

    def __init__(self, tracer: trace.Tracer, term: Term) -> None:
        self.tracer = tracer
        self.attributes: dict[str, AttributeValue] = {
            "pytube.tube": term.tube,
            "pytube.partition": term.partition,
            "pytube.epoch": term.epoch,
        }
        self._marked: dict[int, _Exchange] = {}
        """By seq; forgotten when the pod is purged."""
        self._open: set[_Batch] = set()
        self._first_tries: WeakKeyDictionary[Flight, SpanContext] = WeakKeyDictionary()

    async def exchange(self, exchange: Coroutine[Any, Any, list[Pod]], done: Iterable[int]) -> list[Pod]:
        purged, began = set(done), time.time_ns()
        try:
            pods = await exchange
        except BaseException as error:
            attributes = self.attributes
            span = self.tracer.start_span(
                "exchange", context.Context(), attributes=attributes, start_time=began
            )
            _fail(span, error)
            span.end()
            raise
        if pods or purged:
            self._note(pods, purged, began)
        return pods

    def _note(self, pods: Sequence[Pod], purged: set[int], began: int) -> None:
        counts: dict[str, AttributeValue] = {
            "pytube.pods.marked": len(pods),
            "pytube.pods.purged": len(purged),
        }
        attributes = self.attributes | counts
        span = self.tracer.start_span("exchange", context.Context(), attributes=attributes, start_time=began)
        span.end()
        found = _Exchange(span.get_span_context(), began, time.time_ns())
        for pod in pods:
            self._marked.setdefault(pod.seq, found)  # a pod may be returned twice
        for seq in purged:
            self._marked.pop(seq, None)
        for batch in list(self._open):
            batch.purged(purged, found)

    def batch(self, flight: Flight, groups: Mapping[int, Sequence[Id]]) -> BatchTrace:
        pods = flight.pods(groups)
        first = self._first_tries.get(flight)
        batch = _Batch(self, pods, {self._marked[seq] for seq in pods if seq in self._marked}, first)
        if first is None:
            self._first_tries[flight] = batch.context
        self._open.add(batch)
        return batch

    def end(self, batch: _Batch) -> None:
        self._open.discard(batch)

    def close(self) -> None:
        """End the open spans: the next term marks their pods again."""
        for batch in list(self._open):
            batch.end("term_ended")


class _Batch(BatchTrace):
    """The span of one batch, and its children."""

    def __init__(
        self, traces: TermTraces, pods: set[int], marks: Iterable[_Exchange], first: SpanContext | None
    ) -> None:
        self._traces = traces
        self._pods = pods
        self._unpurged: set[int] | None = None
        """Its pods that are done; None before its outcome was handled."""
        self._outcome = ""
        self._documents = self._bytes = 0
        exchanges = sorted(marks, key=lambda one: one.began)
        links = [Link(one.span) for one in exchanges]
        if first is not None:
            links.append(Link(first, {"pytube.link": "first try"}))
        began = exchanges[0].began if exchanges and first is None else None
        attributes = traces.attributes | {"pytube.pods": len(pods)}
        self._span = traces.tracer.start_span(
            "batch", context.Context(), attributes=attributes, links=links, start_time=began
        )
        self._within = trace.set_span_in_context(self._span, context.Context())
        if first is None:
            for one in exchanges:
                self._add("mark", one)

    @property
    def context(self) -> SpanContext:
        return self._span.get_span_context()

    def __exit__(self, kind: object, error: BaseException | None, stack: object) -> None:
        """An error that ends the delivery ends the term as well, or is its end."""
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            self.end("aborted")

    @contextmanager
    def step(self, name: Step, documents: Documents | None = None) -> Iterator[None]:
        """A child span, which is the current one for the code within, so that a sink's own spans join it."""
        span = self._traces.tracer.start_span(name, self._within)
        if documents is not None:
            size = documents.size
            self._documents += len(documents)
            self._bytes += size
            span.set_attributes({"pytube.documents": len(documents), "pytube.bytes": size})
        token = context.attach(trace.set_span_in_context(span))
        try:
            yield
        except BaseException as error:
            _fail(span, error)
            raise
        finally:
            context.detach(token)
            span.end()

    def delivered(self, counts: Mapping[str, int], machine: InFlight) -> None:
        """End the span, unless some of its pods are done, which are to be purged."""
        found = {name: count for name, count in counts.items() if count}
        self._outcome = next(iter(found))
        self._span.set_attributes({f"pytube.keys.{name}": count for name, count in found.items()})
        self._unpurged = {seq for seq in self._pods if not machine.holds(seq)}
        if not self._unpurged:
            self.end(self._outcome)

    def purged(self, seqs: set[int], exchange: _Exchange) -> None:
        """These pods were purged: end the span, if some of its pods are among them."""
        if self._unpurged and not self._unpurged.isdisjoint(seqs):
            self._add("purge", exchange)
            self.end(self._outcome)

    def end(self, outcome: str) -> None:
        self._span.set_attributes(
            {"pytube.outcome": outcome, "pytube.documents": self._documents, "pytube.bytes": self._bytes}
        )
        if outcome not in _FINE:
            self._span.set_status(Status(StatusCode.ERROR, outcome))
        self._span.end()
        self._traces.end(self)

    def _add(self, name: str, exchange: _Exchange) -> None:
        """The part of this batch in an exchange."""
        span = self._traces.tracer.start_span(
            name, self._within, links=[Link(exchange.span)], start_time=exchange.began
        )
        span.end(exchange.ended)


def _fail(span: Span, error: BaseException) -> None:
    name = type(error).__name__
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, name))
