"""A worker sends its traces to a collector that speaks OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.integration import test_worker_faults
from tests.integration.test_worker_faults import make_tube, running

Conn = psycopg.Connection[tuple[object, ...]]


class Collector:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                collector.requests.append((self.path, headers, body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def resources(self) -> list[dict[str, str]]:
        return [
            {one.key: one.value.string_value for one in spans.resource.attributes}
            for _, _, body in self.requests
            for spans in ExportTraceServiceRequest.FromString(body).resource_spans
        ]

    def spans(self) -> list[Span]:
        return [
            span
            for _, _, body in self.requests
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture
def config_file(dsn: str, tmp_path: Path) -> Path:
    test_worker_faults.taken.clear()
    path = tmp_path / "pytube.toml"
    path.write_text(
        f"""
        [postgres]
        dsn = "{dsn}"
        [worker]
        client_id = "w1"
        tracing = "${{COLLECTOR}}"
        [tube.items.sink]
        type = "callable"
        target = "{test_worker_faults.__name__}:send"
        """
    )
    return path


async def test_spans_arrive_at_a_collector(
    conn: Conn, collector: Collector, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLECTOR", collector.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-index")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    make_tube(conn, 1, 2)
    async with running(config_file) as run:
        await run.until("a batch is traced", lambda: any(one.name == "batch" for one in collector.spans()))
        conn.execute("INSERT INTO public.items VALUES (3)")
        await run.until("it is delivered", lambda: 3 in test_worker_faults.taken)
    batches = [one for one in collector.spans() if one.name == "batch"]
    assert len(batches) == 2, "what was not sent when the worker stopped is sent then"
    attributes = {one.key: one.value for one in batches[0].attributes}
    assert attributes["pytube.tube"].string_value == "items"
    assert attributes["pytube.outcome"].string_value == "delivered"
    assert attributes["pytube.documents"].int_value == 2
    children = [one for one in collector.spans() if one.parent_span_id == batches[0].span_id]
    assert {one.name for one in children} == {"mark", "enrich", "send", "purge"}
    for path, headers, _ in collector.requests:
        assert path == "/v1/traces"
        assert headers["content-type"] == "application/x-protobuf"
        assert headers["api-key"] == "hunter2"
    for resource in collector.resources():
        assert resource["service.name"] == "shop-index"
        assert resource["service.instance.id"] == "w1"


async def test_without_an_exporter_nothing_is_sent(
    conn: Conn, collector: Collector, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLECTOR", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    make_tube(conn, 4)
    async with running(config_file) as run:
        await run.until("it is delivered", lambda: 4 in test_worker_faults.taken)
    assert collector.requests == []
    monkeypatch.delenv("OTEL_TRACES_EXPORTER")
    conn.execute("INSERT INTO public.items VALUES (5)")
    async with running(config_file) as run:
        await run.until("it is delivered", lambda: 5 in test_worker_faults.taken)
    assert any(one.name == "batch" for one in collector.spans()), "the endpoint of the environment is used"
