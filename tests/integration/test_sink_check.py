"""`pytube sink check`: real sinks pass, a broken one does not; nothing is left, also if interrupted."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.embedded.kafka_real import RealKafka
from pytube.embedded.search_server import SearchServer
from pytube.testing.trial import names_of_checks
from tests.helpers import cli
from tests.helpers.opensearch import SMALL, an_index, request
from tests.helpers.receiver import Receiver
from tests.helpers.redis_server import RedisServer
from tests.helpers.waiting import wait_until

CHECKS = len(names_of_checks())


def configure(folder: Path, **options: Any) -> Path:
    lines = [f"{name} = {toml(value)}" for name, value in options.items()]
    (folder / "pytube.toml").write_text(
        '[postgres]\ndsn = "postgresql:///unused"\n[tube.items.sink]\n' + "\n".join(lines)
    )
    return folder


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {toml(item)}" for name, item in value.items()) + " }"
    return json.dumps(value)


def check(folder: Path, *arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """What is said of each check, without the command's reasons for people."""
    done = cli.run("sink", "check", "--tube", "items", "--json", *arguments, folder=folder, code=code)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == CHECKS
    return {one["check"]: one for one in found}


def results(found: dict[str, dict[str, Any]], result: str) -> set[str]:
    return {name for name, one in found.items() if one["result"] == result}


SCANS = {
    "scan_after_more_was_written",
    "scan_finds_what_is_older",
    "scan_of_keys_that_are_texts",
    "scan_of_many_comes_in_pages",
    "scan_sees_what_another_sink_wrote",
}
NEVER = {
    "close_after_open_failed",
    "event_loop_goes_on_while_the_store_hangs",
    "mark_goes",
    "rejected_document",
}
"""What takes another configuration, or a store that hangs, or loses what it holds."""


def test_opensearch(opensearch: SearchServer, tmp_path: Path) -> None:
    with an_index(opensearch.url) as index:
        mappings = {"dynamic": "strict"}
        options = {"url": opensearch.url, "index": index.name, "settings": SMALL, "mappings": mappings}
        found = check(configure(tmp_path, type="opensearch", **options, key="{id}"))
        assert results(found, "not judged") == NEVER
        assert len(results(found, "ok")) == CHECKS - len(NEVER)
        assert request(f"{opensearch.url}/{index.name}*/_alias") == {}


@pytest.mark.parametrize("mode", ["json", "hash"])
def test_redis(redis_server: RedisServer, tmp_path: Path, mode: str) -> None:
    with redis_server.client() as client:
        client.set("of:others", "1")
        found = check(configure(tmp_path, type="redis", url=redis_server.url, mode=mode))
        assert results(found, "failed") == set()
        assert results(found, "not judged") == NEVER | {"open_existing"}
        assert client.keys("*") == [b"of:others"]


def test_postgres(bare_dsn: str, tmp_path: Path) -> None:
    found = check(configure(tmp_path, type="postgres", dsn=bare_dsn, table="mine", columns=["name"]))
    assert results(found, "failed") == set()
    assert results(found, "not judged") == NEVER
    with psycopg.connect(bare_dsn) as conn:
        assert conn.execute("SELECT relname FROM pg_class WHERE relname LIKE 'pytube%'").fetchall() == []


def test_kafka(kafka_real: RealKafka, tmp_path: Path) -> None:
    options = {"bootstrap_servers": kafka_real.bootstrap, "topic": "checked", "partitions": 1}
    topic_options = {"max.message.bytes": "2000000"}
    found = check(configure(tmp_path, type="kafka", **options, topic_options=topic_options))
    assert results(found, "failed") == set()
    # Its contents are not looked at, so that only what needs none is ok.
    reason = str(found["upsert_delete_upsert"]["reason"])
    assert reason.startswith("the answers were right; the written documents were not checked: ")
    assert results(found, "ok") >= {"has_the_shape_of_a_sink", "results_are_results"}
    assert topics(kafka_real) == set()


def test_what_the_tube_itself_lacks_is_told(tmp_path: Path) -> None:
    """All checks pass, in a place of their own, though the place of the tube is gone."""
    path = tmp_path / "items.jsonl"
    configure(tmp_path, type="jsonl", path=str(path))
    said = cli.run("sink", "check", "--tube", "items", folder=tmp_path).output
    assert "note: of the place of the tube itself, which is not checked: " in said
    assert "after a loss: pytube backfill start items" in said
    path.touch()
    assert "itself" not in cli.run("sink", "check", "--tube", "items", folder=tmp_path).output


def topics(kafka: RealKafka) -> set[str]:
    from confluent_kafka.admin import AdminClient

    listed = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0}).list_topics(timeout=30)
    return {name for name in listed.topics if name.startswith("checked")}


def test_webhook_sends_only_when_it_is_told_to(tmp_path: Path) -> None:
    with Receiver() as receiver:
        networks = {"allow_plain_http": True, "allowed_networks": ["127.0.0.0/8"]}
        configure(tmp_path, type="webhook", url=receiver.url, settle_seconds=0.3, **networks)
        refused = cli.run("sink", "check", "--tube", "items", folder=tmp_path, code=2).output
        assert f"{CHECKS} checks would send to the receiver at 127.0.0.1, as documents of the tube" in refused
        assert receiver.requests == []
        found = check(tmp_path, "--yes")
        assert results(found, "failed") == set()
        assert receiver.requests
        bodies = b"".join(request.body for request in receiver.requests)
        assert b'"tube":"conformance-trial-' in bodies
        assert b'"tube":"conformance"' not in bodies


TARGET = """
from pytube.model import OK
from pytube.sinks.callable import CallableSink
from pytube.sinks.base import Trial

STORES = {{}}

def send(batch):
    raise AssertionError("no check writes to the real place")

def trial(name, keys):
    def write(batch):
        held = STORES.setdefault(name, {{}})
        for document in batch if not {is_broken} else ():
            held[document.key] = document.body
        return [OK] * len(batch)

    def read(tube, keys):
        return {{key: body for key in keys if (body := STORES.get(name, {{}}).get(key)) is not None}}

    async def erase(tube, keys):
        if {is_stuck}:
            raise OSError("somebody keeps it")
        STORES.pop(name, None)

    return Trial(lambda: CallableSink(write, read=read, concurrency=1), f"store {{name}}", erase)

send.trial = trial
"""


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_callable_whose_function_can_be_tried(targets: Path) -> None:
    (targets / "ours_right.py").write_text(TARGET.format(is_broken=False, is_stuck=False))
    found = check(configure(targets, type="callable", target="ours_right:send"))
    assert results(found, "failed") == set()
    assert "upsert_delete_upsert" in results(found, "ok")
    assert sys.modules["ours_right"].STORES == {}


def test_a_broken_sink_fails_and_what_is_left_is_named(targets: Path) -> None:
    (targets / "ours_wrong.py").write_text(TARGET.format(is_broken=True, is_stuck=True))
    found = check(configure(targets, type="callable", target="ours_wrong:send"), code=1)
    assert "upsert_delete_upsert" in results(found, "failed")
    assert found["upsert_delete_upsert"]["reason"] == "after upserts: (0, 1) is missing in the store"
    left = found["upsert_delete_upsert"]["left"]
    assert left.startswith("store trial-")
    assert left.endswith("(OSError: somebody keeps it)")


DOWN = """
from pytube.errors import SinkUnavailable
from pytube.sinks.base import Trial
from pytube.sinks.callable import CallableSink

ASKED = []

def send(batch):
    ASKED.append(batch)
    raise SinkUnavailable("the broker is down")

async def erase(tube, keys):
    send(None)

send.trial = lambda name, keys: Trial(lambda: CallableSink(send), "store " + name, erase)
"""


def test_a_store_that_is_down_is_asked_a_few_times_and_not_by_each_check(targets: Path) -> None:
    (targets / "ours_down.py").write_text(DOWN)
    found = check(configure(targets, type="callable", target="ours_down:send"), code=1)
    unasked = [
        one for one in found.values() if one["reason"] == "the store does not answer: the broker is down"
    ]
    assert len(unasked) > CHECKS / 2
    assert {(one["result"], one["left"]) for one in unasked} == {("not judged", None)}
    assert len(sys.modules["ours_down"].ASKED) < 10


def test_what_has_no_place_of_its_own_is_refused(targets: Path) -> None:
    (targets / "ours_plain.py").write_text("def send(batch): pass\n")
    configure(targets, type="callable", target="ours_plain:send")
    said = cli.run("sink", "check", "--tube", "items", folder=targets, code=2).output
    assert "ours_plain:send has no attribute `trial`" in said
    configure(targets, type="jsonl", path="-")
    said = cli.run("sink", "check", "--tube", "items", folder=targets, code=2).output
    assert "only a file can be read back" in said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_cleans_up(tmp_path: Path, number: signal.Signals, code: int) -> None:
    configure(tmp_path, type="jsonl", path=str(tmp_path / "documents.jsonl"))
    process = cli.start("sink", "check", "--tube", "items", config=tmp_path / "pytube.toml")
    try:
        wait_until(
            lambda: list(tmp_path.glob("documents.jsonl.trial-*")) or process.poll() is not None,
            what="a check writes",
        )
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert said.splitlines()[-1] == "pytube: interrupted; nothing is left at the sink"
    assert process.returncode == code
    assert list(tmp_path.glob("documents.jsonl*")) == []
