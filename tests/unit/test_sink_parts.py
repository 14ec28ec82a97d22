"""Documents that are split: ids, JSON texts, answers; and the wrapper passes the conformance suite."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.comparison import decode
from pytube.errors import ConfigError, SinkContract
from pytube.model import (
    OK,
    Batch,
    Document,
    Id,
    Key,
    Ok,
    Reject,
    Result,
    Retry,
    Stale,
    Token,
)
from pytube.sinks import Sink, build_sink, finished
from pytube.sinks.base import EVERY_SEQ, HOLDS_NOTHING, Stored
from pytube.sinks.callable import CallableSink
from pytube.sinks.parts import Parts, PartsSink, base_id, join_results, part_id, place_of
from pytube.testing import Faults, MemorySink, MemoryStore, batch
from pytube.testing import SinkContract as Contract
from tests.helpers.waiting import LIMIT


class Wrapper(MemorySink):
    """A sink of somebody else, which keeps its client under the name that our wrapper has for a sink."""

    inner = object()


def test_only_our_wrapper_is_taken_off() -> None:
    sink = Wrapper(MemoryStore())
    assert place_of(sink) is sink
    assert place_of(PartsSink(sink, NAMED)) is sink


NAMED = Parts(["head", "body", "tags"])
NUMBERED = Parts(3)


# --- ids ----------------------------------------------------------------------------------------

IDS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.text(st.sampled_from("~/-07a"), max_size=5),
    st.text(),
)


@pytest.mark.parametrize(
    ("key", "named"),
    [
        (42, "42/head"),
        (-42, "-42/head"),
        ("42", "~42/head"),
        ("~42", "~~42/head"),
        ("007", "~007/head"),
        ("", "/head"),
        ("a/b", "a/b/head"),
        ("-", "-/head"),
        ("~", "~~/head"),
        ("٣", "٣/head"),
    ],
)
def test_ids_of_parts(key: Id, named: str) -> None:
    assert part_id(key, "head") == named
    assert base_id(named) == (key, "head")


@given(IDS, IDS, st.sampled_from(["head", "0", "-"]))
def test_no_id_is_taken_for_another(one: Id, other: Id, part: str) -> None:
    found = base_id(part_id(one, part))
    assert found == (one, part)
    assert found is not None
    assert type(found[0]) is type(one)
    same = (type(one), one) == (type(other), other)
    assert (part_id(one, part) == part_id(other, part)) is same


@pytest.mark.parametrize("found", [42, "42", "", "007/head", "~a/head", "~/head"])
def test_ids_that_are_no_part(found: Id) -> None:
    assert base_id(found) is None


# --- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "text", "split"),
    [
        (NAMED, '{"head": 1.50, "body" :\n[1e300, 0.1000000000000000055] , "tags": "x"}', None),
        (NAMED, '{"tags":{"a": "}],\\"{"}}', [None, None, '{"a": "}],\\"{"}']),
        (NAMED, '{"head":null, "body":false}', [None, "false", None]),
        (NAMED, " { } \n", [None, None, None]),
        (NAMED, '{"h\\u0065ad":"\\ud800"}', ['"\\ud800"', None, None]),
        (NAMED, '{"head":' + "9" * 5000 + "}", ["9" * 5000, None, None]),
        (NUMBERED, '[{"n": 1.50}, null ,[]]', ['{"n": 1.50}', None, "[]"]),
        (NUMBERED, "[1]", ["1", None, None]),
        (NUMBERED, "[]", [None, None, None]),
    ],
)
def test_texts_are_cut_as_they_are(parts: Parts, text: str, split: list[str | None] | None) -> None:
    expected = split or ["1.50", "[1e300, 0.1000000000000000055]", '"x"']
    assert parts.split(text.encode()) == [None if one is None else one.encode() for one in expected]


@pytest.mark.parametrize(
    ("parts", "text", "says"),
    [
        (NAMED, "[1]", "expected an object with the parts head, body, tags"),
        (NAMED, "null", "expected an object with the parts head, body, tags"),
        (NAMED, '{"head":1,"feet":2}', "its member 'feet' is none of the parts head, body, tags"),
        (NAMED, '{"head":1,"head":2}', "it has the part head twice"),
        (NAMED, '{"head":1} x', "it is not valid JSON: more text follows its end"),
        (NAMED, '{"head":1', "it is not valid JSON: ',' is missing at character 9"),
        (NAMED, '{"head":', "it is not valid JSON: Expecting value"),
        (NAMED, '{"head" 1}', "it is not valid JSON: ':' is missing at character 8"),
        (NAMED, "{1:2}", "it is not valid JSON: a name is not a string"),
        (NAMED, '{"head":' + "[" * 100_000, "it is nested too deeply"),
        (NAMED, b'{"head":"\xff"}', "'utf-8' codec can't decode"),
        (NAMED, b"", "expected an object with the parts"),
        (NUMBERED, "{}", "expected an array of at most 3 documents"),
        (NUMBERED, "[1,2,3,null]", "expected an array of at most 3 documents, got 4"),
        (NUMBERED, "[1 2]", "it is not valid JSON: ',' is missing at character 3"),
        (Parts([f"p{n}" for n in range(11)]), "1", "p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, …"),
    ],
)
def test_texts_that_can_not_be_split(parts: Parts, text: str | bytes, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parts.split(text if isinstance(text, bytes) else text.encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(NAMED.names), JSON), st.sampled_from([None, 2]))
def test_what_is_cut_and_joined_has_the_same_values(document: dict[str, Any], indent: int | None) -> None:
    split = NAMED.split(json.dumps(document, indent=indent).encode())
    there = {name: value for name, value in document.items() if value is not None}
    assert json.loads(NAMED.join(split)) == there


@given(st.lists(JSON, max_size=3))
def test_elements_are_cut_in_their_order(elements: list[Any]) -> None:
    split = NUMBERED.split(json.dumps(elements).encode())
    assert [None if text is None else json.loads(text) for text in split] == (elements + [None] * 3)[:3]


# --- answers ------------------------------------------------------------------------------------

OURS, LATER = int(Token(5, 5)), int(Token(6, 1))


@pytest.mark.parametrize(
    ("results", "joined"),
    [
        ([OK, OK, OK], OK),
        ([OK, Stale(OURS), OK], OK),
        ([OK, Retry(1.0, "busy"), Retry(3.0, "late")], Retry(3.0, "part tags: late")),
        ([Retry(1.0, "busy"), Reject("bad"), OK], Reject("part body: bad")),
        ([Reject("bad"), Reject("worse"), OK], Reject("part head (and parts body): bad")),
        ([Reject("bad"), Stale(LATER), Stale(LATER + 1)], Stale(LATER + 1)),
        ([Stale(OURS), Stale(LATER), Retry(1.0, "busy")], Stale(LATER)),
        ([Reject("bad")] * 3, Reject("part head (and parts body, tags): bad")),
        ([Stale(1), OK, OK], Stale(1)),  # the caller sees that the sink breaks its contract
    ],
)
def test_the_gravest_answer_is_that_of_the_document(results: list[Result], joined: Result) -> None:
    assert join_results(NAMED.names, results, Token(5, 5)) == joined


async def test_answers_that_break_the_contract() -> None:
    with pytest.raises(SinkContract, match="5 results for 6 parts"):
        await (await opened(MemorySink(faults=Faults(short=1)))).send(batch({1: {}, 2: {}}))
    with pytest.raises(SinkContract, match="for part body, which is not a result"):
        join_results(NAMED.names, [OK, "fine", OK], Token(1, 1))  # type: ignore[list-item] # that is it


# --- the wrapper --------------------------------------------------------------------------------


async def opened(inner: Sink, parts: Parts = NAMED) -> PartsSink:
    sink = PartsSink(inner, parts)
    await sink.open()
    return sink


def held(sink: MemorySink) -> dict[Key, Any]:
    return sink.store.values()


async def test_every_write_covers_all_parts() -> None:
    inner = MemorySink()
    sink = await opened(inner)
    await sink.send(batch({1: {"head": 1, "body": 2, "tags": 3}}, token=(1, 1), seq=4))
    assert held(inner) == {(0, "1/head"): 1, (0, "1/body"): 2, (0, "1/tags"): 3}
    await sink.send(batch({1: {"body": 5}}, token=(1, 2), seq=6))
    assert held(inner) == {(0, "1/body"): 5}
    assert {(d.token, d.seq) for d in inner.store.held.values()} == {(Token(1, 2), 6)}
    await sink.send(batch({1: None}, token=(1, 3)))
    assert held(inner) == {}
    assert len(inner.store.log) == 9


async def test_what_can_not_be_split_is_rejected_alone() -> None:
    inner = MemorySink(faults=Faults(reject={(0, "4/body")}))
    sink = await opened(inner)
    results = await sink.send(batch({1: {"head": 1}, 2: {"feet": 1}, 3: None, 4: {"body": 1}}))
    assert results == [
        OK,
        Reject("it can't be split into parts: its member 'feet' is none of the parts head, body, tags"),
        OK,
        Reject("part body: memory: rejects (0, '4/body')"),
    ]
    assert held(inner) == {(0, "1/head"): 1}


async def test_the_right_to_send_is_that_of_the_whole_batch() -> None:
    got: list[Batch] = []

    def take(batch: Batch) -> None:
        got.append(batch)

    sent = batch({1: {}}, tube="t", partition=7)
    sent.host = "eu"
    sent.trust_until(float("inf"))
    await (await opened(CallableSink(take))).send(sent)
    (inner,) = got
    assert (inner.tube, inner.partition, inner.host, inner.token) == ("t", 7, "eu", sent.token)
    sent.trust_until(0.0)
    assert sent.carrying([]).has_lapsed()
    assert not inner.has_lapsed()


async def test_what_is_abandoned_is_the_batch_of_parts() -> None:
    """Also of a batch that is sent again; a batch that was never sent has nothing to wait for."""

    class Noting(MemorySink):
        abandoned: list[Batch]

        async def abandon(self, batch: Batch) -> None:
            self.abandoned.append(batch)

    inner = Noting(faults=Faults(hang=True))
    inner.abandoned = []
    sink = await opened(inner)
    sent = batch({1: {"head": 1}})
    await sink.abandon(sent)
    assert inner.abandoned == []
    task = asyncio.create_task(sink.send(sent))
    await asyncio.wait({task}, timeout=0.01)
    task.cancel()
    await asyncio.wait({task})
    await sink.abandon(sent)
    await sink.abandon(sent)
    assert [[d.id for d in one] for one in inner.abandoned] == [["1/head", "1/body", "1/tags"]] * 2
    del sent, task
    assert len(sink._sent) == 0, "what nobody can abandon any more is forgotten"


async def test_a_scan_gives_whole_ids_and_tells_what_it_leaves_out() -> None:
    inner = MemorySink()
    sink = await opened(inner)
    await sink.send(batch({1: {"head": 1, "body": 1}, "1": {"tags": 1}}, seq=5))
    await inner.send(batch({(0, 7): {}, (0, "7/feet"): {}, (0, "~x/head"): {}, (1, "9/head"): {}}, seq=5))
    for _ in range(2):
        found = [key async for page in sink.scan("t", 0, EVERY_SEQ) for key in page]
        assert found == [1, 1, "1"]
        assert sink.overlooked() == (
            "3 documents at the sink are none of the configured parts, e.g. shard 0 id '7'; "
            "`parts` was another when they were written: see docs/transforms.md"
        )
    assert [key async for page in sink.scan("t", 1, EVERY_SEQ) for key in page] == [9]
    assert [key async for page in (await opened(MemorySink())).scan("t", 1, 9) for key in page] == []
    assert (await opened(MemorySink())).overlooked() is None


@pytest.mark.parametrize(
    ("parts", "value", "joined"),
    [(NAMED, {"tags": [1.5], "head": None}, {"tags": [1.5]}), (NUMBERED, [1, None, 3], {"0": 1, "2": 3})],
)
async def test_parts_are_read_as_one_document(parts: Parts, value: Any, joined: Any) -> None:
    sink = await opened(MemorySink(), parts)
    sent = batch({1: value}, token=(1, 2), seq=5)
    await sink.send(sent)
    stored = (await sink.read("t", [(0, 1)]))[0, 1]
    assert (stored.value, stored.token, stored.seq) == (joined, Token(1, 2), 5)
    (as_held,) = await sink.as_held([document.body or b"" for document in sent])
    assert as_held == stored.body
    assert decode(as_held or b"") == joined


async def test_what_is_known_of_a_document_is_what_is_known_of_all_its_parts() -> None:
    inner = MemorySink()
    sink = await opened(inner)
    await sink.send(batch({1: {"head": 1, "body": 1}}, token=(1, 2), seq=5))
    await inner.send(batch({(0, "1/head"): 2, (0, "1/tags"): None}, token=(2, 1), seq=9))
    stored = (await sink.read("t", [(0, 1)]))[0, 1]
    assert (stored.value, stored.token, stored.seq) == ({"head": 2, "body": 1}, Token(1, 2), 5)
    inner.store.held[0, "1/body"] = Document(0, "1/body", b"1,", Token(3, 1), 7)
    broken = (await sink.read("t", [(0, 1)]))[0, 1]
    with pytest.raises(ValueError, match="unexpected|Extra data|line 1"):
        assert broken.value
    gone = (await sink.read("t", [(0, 2)]))[0, 2]
    assert (gone.exists, gone.body, gone.value, gone.token) == (False, None, None, None)


async def test_documents_of_which_nothing_is_held() -> None:
    class Picky(MemorySink):
        async def as_held(self, bodies: Sequence[bytes]) -> Sequence[bytes | None]:
            return [None if body == b"0" else b"[" + body + b"]" for body in bodies]

    sink = await opened(Picky())
    bodies = [b'{"head":null}', b"{}", b'{"head":1,"tags":2}', b'{"head":1,"tags":0}', b'{"feet":1}']
    assert await sink.as_held(bodies) == [
        HOLDS_NOTHING,
        HOLDS_NOTHING,
        b'{"head":[1],"tags":[2]}',
        None,
        None,
    ]


async def test_what_the_other_sink_can_not_do() -> None:
    sink = await opened(CallableSink(lambda _: None))
    assert sink.cannot_scan() == "the sink can't be scanned"
    assert "names no function" in (sink.cannot_read() or "")
    assert sink.compares is False
    assert PartsSink(MemorySink(compares=True), NAMED).compares is True


def test_a_time_out_of_the_other_sink_counts() -> None:
    class Slow(MemorySink):
        write_timeout = 9.0

    sink = PartsSink(Slow(), NAMED)
    assert finished("slow", sink, request_timeout=9.0, parts=None) is sink
    with pytest.raises(ConfigError, match="a write may take 9 s"):
        finished("slow", sink, request_timeout=8.0, parts=None)


def test_it_is_built_where_parts_are_declared() -> None:
    assert isinstance(build_sink("jsonl", {"path": "-"}, parts=["a"]), PartsSink)
    assert not isinstance(build_sink("jsonl", {"path": "-"}), PartsSink)
    with pytest.raises(ConfigError, match='"path" is missing'):
        build_sink("jsonl", {}, parts=2)
    table = {"dsn": "", "table": "copy"}
    assert isinstance(build_sink("postgres", table, parts=2), PartsSink)
    assert isinstance(
        build_sink("postgres", {**table, "create": True, "id_type": "text"}, parts=2), PartsSink
    )
    with pytest.raises(ConfigError) as caught:
        build_sink("postgres", {**table, "create": True}, parts=2)
    assert str(caught.value) == (
        'sink "postgres": the ids of `parts` are texts, and it creates a table of id_type = "bigint"; '
        'set id_type = "text"'
    )


# --- the suite ----------------------------------------------------------------------------------


class Copies(Parts):
    """Of any document, as the suite's own are: it is each part but the last, which is never there."""

    def split(self, body: bytes) -> list[bytes | None]:
        return [body, body, None]


class WholeSink(PartsSink):
    """Shows the first part as the document."""

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        found = await super().read(tube, keys)
        return {
            key: one if not one.exists else Stored(json.dumps(one.value["a"]).encode(), one.token, one.seq)
            for key, one in found.items()
        }

    async def as_held(self, bodies: Sequence[bytes]) -> Sequence[bytes | None]:
        return bodies


COPIES = Copies(["a", "b", "c"])


def whole(values: Mapping[Key, Any]) -> dict[Key, Any]:
    """By their own ids; each has both of its parts, and no other."""
    found: dict[Key, Any] = {}
    for (shard, id_), value in values.items():
        split = base_id(id_)
        assert split is not None
        assert split[1] in ("a", "b")
        assert values[shard, part_id(split[0], "a")] == values[shard, part_id(split[0], "b")] == value
        found[shard, split[0]] = value
    return found


class TestAroundMemory(Contract):
    """A sink that compares, can be scanned and read, and hangs when it is told to."""

    limit = LIMIT
    grace = 0.05

    @pytest.fixture(autouse=True)
    def _store(self) -> None:
        self.store = MemoryStore()
        self.made: list[MemorySink] = []

    def make_sink(self) -> Sink:
        self.made.append(MemorySink(self.store, compares=True))
        return WholeSink(self.made[-1], COPIES)

    def unopenable_sink(self) -> Sink:
        return WholeSink(MemorySink(faults=Faults(down=True)), COPIES)

    def read_back(self) -> dict[Key, Any]:
        return whole(self.store.values())

    def stall(self) -> bool:
        for sink in self.made:
            sink.faults = Faults(hang=True)
        return True

    def unstall(self) -> None:
        for sink in self.made:
            sink._faults = Faults()


class TestAroundCallable(Contract):
    """A sink whose writes go on after they were cancelled, so that `abandon` has to wait for them."""

    grace = 0.05

    @pytest.fixture(autouse=True)
    def _store(self) -> None:
        self.store = MemoryStore()
        self.go = threading.Event()
        self.go.set()

    def make_sink(self) -> Sink:
        return WholeSink(CallableSink(self._write), COPIES)

    def _write(self, batch: Batch) -> list[Result]:
        self.go.wait()
        return [
            Reject("no") if d.body == b'"no"' and str(d.id).endswith("/b") else self._take(d) for d in batch
        ]

    def _take(self, document: Document) -> Ok | Stale:
        return self.store.write(document, compare=False)

    def rejected_value(self) -> Any:
        return "no"

    def read_back(self) -> dict[Key, Any]:
        values = self.store.values()
        # Of a document that is rejected, the other part was taken.
        return whole({key: value for key, value in values.items() if value != "no"})

    def stall(self) -> bool:
        self.go.clear()
        return True

    def unstall(self) -> None:
        self.go.set()
