"""What is traced of a batch, with the spans kept in memory."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from pytube.errors import ConfigError
from pytube.model import Batch, PodClass, Result
from pytube.pipeline import retry_queue
from pytube.pipeline.inflight import Flight
from pytube.sources.pods import Step
from pytube.testing.memory import Faults, MemorySink
from pytube.worker import pace, queues
from pytube.worker.metrics import UNTRACED, Tracing, build_tracing
from pytube.worker.otel import OpenTelemetry
from pytube.worker.queues import Tube
from tests.unit.rig import Rig

SECRET = "hunter2"


class Spans:
    """The spans of a worker."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = OpenTelemetry(self.provider.get_tracer("tests"))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def children(self, batch: ReadableSpan) -> list[ReadableSpan]:
        """In the order of their beginning."""
        own = [one for one in self.all if one.parent is not None and one.parent == batch.context]
        return sorted(own, key=lambda one: one.start_time or 0)


def about(span: ReadableSpan) -> dict[str, Any]:
    """The attributes without the prefix."""
    return {name.removeprefix("pytube."): value for name, value in (span.attributes or {}).items()}


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def number(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short back-offs, and none of the caller's settings."""
    monkeypatch.setattr(retry_queue, "_FIRST_DELAY", 0.002)
    monkeypatch.setattr(pace, "_DEEP_PAUSE", 3600.0)
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


async def test_a_witness_is_traced_although_no_pod_waits_for_it(spans: Spans) -> None:
    rig = Rig(None, spans.tracing, attempts=1)
    async with rig.running():
        rig.insert(1)
        await rig.until_empty()
        rig.worker._blame._parked_in_a_row = 100
        rig.sink.faults = Faults(fail={(0, 2)})
        rig.insert(2)
        await rig.until_empty()
    assert [about(span)["outcome"] for span in spans.named("batch") if about(span)["pods"] == 0] == [
        "delivered"
    ]


async def test_a_step_is_traced_too(spans: Spans) -> None:
    rig = Rig(None, spans.tracing)
    await rig.sink.open()
    outcome = await rig.deliverer.deliver(Flight(PodClass.INCREMENTAL), {0: [1]})
    assert outcome.done


async def test_the_span_of_an_operators_step_ends(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(None, spans.tracing)
    await rig.sink.open()
    ended: list[object] = []

    class Source:
        def __init__(self, *_: object) -> None: ...

        async def take_step(self, number: int) -> Step:
            return Step(number, 7, 0.0, 0, 1)

        async def end_step(self, _step: Step, outcome: str, _reason: str | None) -> None:
            ended.append(outcome)

    monkeypatch.setattr(queues, "TubeSource", Source)
    served: Any = rig.served
    served.why_closed, served.limits = None, SimpleNamespace(request_timeout=1.0)
    served.database, served.tracing = SimpleNamespace(pool=None), spans.tracing
    await Tube.step(cast("Tube", served), rig.active_term, 1)
    assert ended == ["delivered"]
    (batch,) = spans.named("batch")
    assert (about(batch)["outcome"], about(batch)["keys.delivered"]) == ("delivered", 1)


async def test_a_batch_has_its_steps_as_children(spans: Spans) -> None:
    rig = Rig(None, spans.tracing)
    rig.insert(1, 2)
    rig.insert(3)
    async with rig.running():
        await rig.until("the batch is traced", lambda: spans.named("batch"))
    (batch,) = spans.named("batch")
    children = spans.children(batch)
    assert [child.name for child in children] == ["mark", "enrich", "send", "purge"]
    body = sum(map(len, rig.enricher.rows.values()))
    assert about(batch) == {
        "tube": "t",
        "partition": 0,
        "epoch": 100,
        "pods": 2,
        "keys.delivered": 3,
        "documents": 3,
        "bytes": body,
        "outcome": "delivered",
    }
    assert about(children[2]) == {"documents": 3, "bytes": body}
    assert batch.status.status_code is StatusCode.UNSET
    assert batch.start_time is not None
    assert batch.end_time is not None
    for child in children:
        assert child.start_time is not None
        assert child.end_time is not None
        assert batch.start_time <= child.start_time <= child.end_time <= batch.end_time
    assert not rig.worker._traces._open  # type: ignore[attr-defined]


async def test_a_batch_links_to_each_exchange_that_marked_its_pods(spans: Spans) -> None:
    rig = Rig(None, spans.tracing, mark_limit=1)
    rig.insert(1)
    rig.insert(2)
    rig.enricher.go.clear()  # four reads at once, and four more ahead, so that what comes then is one batch
    for key in range(3, 12):
        rig.insert(key)
    async with rig.running():
        await rig.until("all are marked", lambda: len(rig.tube.marked) == 11)
        rig.enricher.go.set()
        await rig.until(
            "all are traced", lambda: sum(about(one)["pods"] for one in spans.named("batch")) == 11
        )
    several = [one for one in spans.named("batch") if about(one)["pods"] != 1]
    assert several, "no batch has several pods"
    exchanges = {number(one) for one in spans.named("exchange") if about(one)["pods.marked"]}
    for batch in several:
        marks = [child for child in spans.children(batch) if child.name == "mark"]
        assert len(marks) == about(batch)["pods"] == len(batch.links)
        assert linked(batch) <= exchanges
    assert set().union(*map(linked, spans.named("batch"))) == exchanges, "each pod's exchange is linked to"


class Quoting(MemorySink):
    """Its errors quote documents and secrets."""

    async def send(self, batch: Batch) -> Sequence[Result]:
        if any(document.id == 13 for document in batch):
            raise ValueError(f"{SECRET}: {[document.body for document in batch]}")
        return await super().send(batch)


async def test_an_error_is_told_without_documents_and_secrets(spans: Spans) -> None:
    rig = Rig(Quoting(), spans.tracing, attempts=1)
    rig.insert(12, 13)
    async with rig.running():
        await rig.until_empty()
        await rig.until("its batch is traced", lambda: len(spans.named("batch")) == 3)
    failed = [one for one in spans.named("send") if one.status.status_code is StatusCode.ERROR]
    assert [one.status.description for one in failed] == ["ValueError"] * 2
    batches = spans.named("batch")
    assert sorted(str(about(one)["outcome"]) for one in batches) == ["delivered", "failed", "failed"]
    (first,) = [one for one in batches if about(one).get("keys.failed") == 2]
    assert first.status.status_code is StatusCode.ERROR
    for again in batches:
        assert (number(first) in linked(again)) is (again is not first), "later tries link to the first"
    text = "".join(one.to_json() for one in spans.all)
    assert SECRET not in text
    assert "13" not in {value for one in spans.all for value in map(str, about(one).values())}
    assert not any(one.events for one in spans.all)


async def test_a_batch_that_the_term_s_end_cuts_short_is_ended(spans: Spans) -> None:
    rig = Rig(None, spans.tracing)
    rig.sink.faults = Faults(hang=True)
    rig.insert(1)
    async with rig.running():
        await rig.until("it is sent", lambda: rig.sink.sends)
    (batch,) = spans.named("batch")
    assert about(batch)["outcome"] == "aborted"
    assert about(batch)["error.type"] == "CancelledError"
    (send,) = spans.named("send")
    assert send.status.description == "CancelledError"


async def test_spans_of_a_sink_join_the_send(spans: Spans) -> None:
    class Tracing(MemorySink):
        async def send(self, batch: Batch) -> Sequence[Result]:
            with spans.provider.get_tracer("sink").start_as_current_span("its own"):
                return await super().send(batch)

    rig = Rig(Tracing(), spans.tracing)
    rig.insert(1)
    async with rig.running():
        await rig.until("the batch is traced", lambda: spans.named("batch"))
    (own,), (send,) = spans.named("its own"), spans.named("send")
    assert own.parent == send.context


async def test_without_tracing_nothing_is_made() -> None:
    assert type(build_tracing(False, "w1")) is Tracing
    rig = Rig()
    assert rig.worker._traces.batch(Flight(PodClass.INCREMENTAL), {}) is UNTRACED


def test_without_tracing_nothing_is_imported() -> None:
    code = "import sys, pytube.worker.worker; sys.exit(any('opentelemetry' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_the_tracer_of_an_embedding_program_is_used(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)
    tracing = build_tracing(True, "w1")
    rig = Rig(None, tracing)
    rig.insert(1)
    async with rig.running():
        await rig.until("the batch is traced", lambda: spans.named("batch"))
    await tracing.close()
    with spans.provider.get_tracer("theirs").start_as_current_span("after"):
        pass
    assert spans.named("after"), "their provider was shut down"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
    ],
)
def test_a_variable_that_asks_for_another_exporter_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f'{name}: expected .*, got "{value}"'):
        build_tracing(True, "w1")


def test_a_variable_that_opentelemetry_refuses_is_an_error_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1000000")
    with pytest.raises(ConfigError, match="variables OTEL_"):
        build_tracing(True, "w1")


async def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pytube.worker.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"worker\.tracing needs .* pip install 'pytube-pg\[tracing\]'"):
        build_tracing(True, "w1")


async def test_a_collector_that_is_down_does_not_keep_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytube.worker.otel._CLOSE_TIMEOUT", 0.05)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "false")
    tracing = build_tracing("http://127.0.0.1:9", "w1")  # nobody listens at the discard port
    rig = Rig(None, tracing)
    rig.insert(1)
    async with rig.running():
        await rig.until_empty()
    await asyncio.wait_for(tracing.close(), 5)
