"""Transforms: what a function gets, what becomes of its answers, and which functions are refused."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from pytube import transforms
from pytube.errors import ConfigError, SinkTimeout, SinkUnavailable
from pytube.logs import UserFaults
from pytube.model import Document, Documents, Pod, PodClass, Token
from pytube.pipeline.inflight import InFlight
from pytube.transforms import DELETE, KEEP, SKIP, Change, Origin, Transformed, Transforms
from tests.unit.fakes import RecordingLogger
from tests.unit.rig import Rig
from tests.unit.trip import Trip, done

TOKEN = Token(100, 7)
ORIGIN = Origin("t", 3, 1234.5, {0: "public.orders"})
Function = Callable[[Change], Any]


def made_of(*functions: Function) -> Transforms:
    log = RecordingLogger()
    named = [(function.__name__, function) for function in functions]
    return Transforms(named, log, UserFaults(log))


async def apply(body: bytes | None, *functions: Function) -> Transformed:
    """What becomes of one document, whose key is `(0, 5)`."""
    documents = Documents(TOKEN, 9)
    documents.add(0, [5], [body])
    return await made_of(*functions).apply(documents, ORIGIN)


async def sent(body: bytes | None, *functions: Function) -> bytes | None:
    """The body of one document that is sent."""
    (document,) = (await apply(body, *functions)).documents
    assert (document.key, document.token, document.seq) == ((0, 5), TOKEN, 9)
    return document.body


async def refused(body: bytes, *functions: Function) -> str:
    """Why one document is rejected."""
    came = await apply(body, *functions)
    assert (list(came.documents), came.skipped) == ([], [])
    return came.rejected[0, 5]


def keep(_: Change) -> object:
    return KEEP


# --- what it gets -------------------------------------------------------------------------------


async def test_what_a_transform_gets() -> None:
    got: list[Change] = []

    def note(change: Change) -> object:
        got.append(change)
        return KEEP

    await apply(b'{"id": 5}', note)
    await apply(None, note)
    upsert = Change("upsert", 5, {"id": 5}, TOKEN, 9, 1234.5, "t", 0, "public.orders")
    assert got == [upsert, dataclasses.replace(upsert, op="delete", document=None)]
    assert upsert.key == (0, 5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        upsert.op = "delete"  # type: ignore[misc] # that is the point


def test_the_time_of_a_flight_is_that_of_its_seq() -> None:
    machine = InFlight()
    machine.add([Pod(4, "U", 0, [1], None, 40.0), Pod(9, "U", 0, [2], None, 90.0)])
    machine.add([Pod(7, "U", 0, [3], None, 99.0)])
    flight = machine.take(PodClass.INCREMENTAL, 1)
    assert flight is not None
    assert (flight.stamp, flight.ts) == (9, 90.0)


# --- what it returns ----------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b'{"n": 0.1000000000000000055,  "n": 1}', b"[1]", b"null", None])
async def test_what_is_kept_is_kept_to_the_last_digit(body: bytes | None) -> None:
    assert await sent(body, keep) == body


async def test_input_that_was_changed_in_place_does_not_count() -> None:
    def spoil(change: Change) -> object:
        change.document.clear()
        return KEEP

    assert await sent(b'{"id":5}', spoil, lambda change: change.document | {"seen": True}) == (
        b'{"id":5,"seen":true}'
    )


async def test_documents_are_changed_one_transform_after_the_other() -> None:
    def double(change: Change) -> object:
        return {"n": change.document["n"] * 2, "word": "Größe"}

    assert json.loads(await sent(b'{"n": 1}', double, double) or b"") == {"n": 4, "word": "Größe"}


async def test_a_delete_may_become_a_document_and_a_document_a_delete() -> None:
    ops: list[str] = []

    def note(change: Change) -> object:
        ops.append(change.op)
        return KEEP

    assert await sent(None, lambda _: {"gone": True}, note) == b'{"gone":true}'
    assert await sent(b"{}", lambda _: DELETE, note) is None
    assert ops == ["upsert", "delete"]


async def test_a_skip_ends_the_chain() -> None:
    def boom(change: Change) -> object:
        raise AssertionError(change)

    came = await apply(b"{}", lambda _: SKIP, boom)
    assert (list(came.documents), came.skipped, came.rejected) == ([], [(0, 5)], {})


class Broken(dict[str, int]):
    def items(self) -> Any:
        raise OSError("no items")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "returned None; return a document, KEEP, SKIP or DELETE"),
        (
            [{"id": 1}, {"id": 2}],
            "returned a list, but a row is one document; for several, declare the sink's ",
        ),
        (({},), "returned a tuple, but a row is one document; for several, declare the sink's `parts`"),
        (float("nan"), "returned a value that is not valid JSON: Out of range float values"),
        ({"at": object()}, "returned a value that is not valid JSON: Object of type object"),
        (Broken(a=1), "returned a value that is not valid JSON: no items"),
        ("\ud800", "returned a value that is not valid JSON: 'utf-8' codec can't encode"),
    ],
)
async def test_answers_that_can_not_be_sent(answer: object, says: str) -> None:
    def odd(_: Change) -> object:
        return answer

    reason = await refused(b"{}", odd)
    assert reason.startswith("transform odd ")
    assert says in reason


@pytest.mark.parametrize("answer", [[{"id": 1}, None], ({"id": 1}, None)])
async def test_where_the_sink_splits_documents_a_list_is_one(answer: object) -> None:
    log = RecordingLogger()
    splitting = Transforms([("split", lambda _: answer)], log, UserFaults(log), splits=True)
    documents = Documents(TOKEN, 9)
    documents.add(0, [5], [b"{}"])
    assert [one.body for one in (await splitting.apply(documents, ORIGIN)).documents] == [b'[{"id":1},null]']


async def test_a_document_that_is_no_json() -> None:
    assert "can't be decoded for its transform" in await refused(b"plain text", keep)


@pytest.mark.parametrize("error", [KeyError("total"), SystemExit(2)])
async def test_an_exception_rejects_one_document_and_its_stack_is_logged(error: BaseException) -> None:
    def picky(change: Change) -> object:
        if change.id == 2:
            raise error
        return KEEP

    trip = Trip(1, 2, 3)
    with_transforms(trip.rig, picky)
    outcome = await trip.run()
    assert trip.held == done(outcome) == [1, 3]
    assert outcome.rejected == {(0, 2): f"transform picky raised {type(error).__name__}: {error}"}
    ((_, event, fields, logged),) = trip.rig.served.log.lines
    assert (event, fields["call"], fields["partition"]) == ("user_code_raised", "transform", 0)
    assert logged is error, "its stack trace goes to the log"


@pytest.mark.parametrize("error", [SinkUnavailable("later"), SinkTimeout("too slow")])
async def test_an_outage_that_is_raised_on_purpose_rejects_the_document_and_is_no_fault(
    error: Exception,
) -> None:
    def picky(_: Change) -> object:
        raise error

    trip = Trip(1)
    with_transforms(trip.rig, picky)
    outcome = await trip.run()
    assert outcome.rejected == {(0, 1): f"transform picky raised {type(error).__name__}: {error}"}
    assert trip.rig.served.log.lines == []


async def test_a_long_reason_is_cut() -> None:
    def talks(_: Change) -> object:
        raise ValueError("x" * 10_000)

    assert len(await refused(b"{}", talks)) == 500


# --- in a delivery ------------------------------------------------------------------------------


def with_transforms(rig: Rig, *functions: Function) -> None:
    named = [(function.__name__, function) for function in functions]
    rig.deliverer._transforms = Transforms(named, rig.served.log, UserFaults(rig.served.log))


async def test_batches_are_cut_by_what_is_sent() -> None:
    trip = Trip(1, 2, batch_bytes=100)
    with_transforms(trip.rig, lambda change: {"id": change.id, "text": "x" * 90})
    outcome = await trip.run()
    assert [list(groups[0]) for groups in outcome.done] == [[1], [2]]


async def test_what_is_skipped_is_acknowledged_and_stays_as_it_is_at_the_sink() -> None:
    rig = Rig()
    older = Document(0, 2, b'"older"', Token(1, 1), 1)
    rig.sink.store.held[0, 2] = older
    rig.tube.parked[0, 2] = {}
    with_transforms(rig, lambda change: SKIP if change.id == 2 else KEEP)
    rig.insert(1, 2)
    async with rig.running():
        await rig.until_empty()
        await rig.until("the key is parked no more", lambda: not rig.tube.parked)
    assert rig.sink.store.held[0, 2] == older
    assert (0, 1) in rig.sink.store.held
    counters = rig.worker.counters
    assert (sum(counters.documents), sum(counters.skipped)) == (1, 1)


async def test_a_reason_that_postgres_could_not_store_is_parked() -> None:
    def odd(_: Change) -> object:
        raise ValueError("nul \0, half a pair \ud800")

    rig = Rig()
    with_transforms(rig, odd)
    rig.insert(1)
    async with rig.running():
        await rig.until_empty()
    assert rig.tube.parked[0, 1]["error"] == ("transform odd raised ValueError: nul \\0, half a pair \\ud800")


async def test_the_event_loop_gets_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms, "_SLICE", 0.0)
    documents = Documents(TOKEN, 9)
    documents.add(0, range(10), [b"{}"] * 10)
    task = asyncio.create_task(made_of(keep).apply(documents, ORIGIN))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10


async def test_a_slow_call_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms, "_SLOW", 0.0)
    documents = Documents(TOKEN, 9)
    documents.add(0, [5, 6], [b"{}"] * 2)
    slow = made_of(keep)
    await slow.apply(documents, ORIGIN)
    log = slow._log
    assert isinstance(log, RecordingLogger)
    ((_, event, fields, _),) = log.lines
    assert (event, fields["partition"], fields["id"]) == ("transform_slow", 3, 5)


# --- which functions ----------------------------------------------------------------------------


async def waits(change: Change) -> object:
    return change


number = 5
LOADED = f"{__name__}:keep"


def load(*targets: str) -> Transforms | None:
    log = RecordingLogger()
    return Transforms.load(targets, "es-live", log, UserFaults(log))


def test_functions_are_found_by_name() -> None:
    assert load() is None
    loaded = load(LOADED)
    assert loaded is not None
    assert [name for name, _ in loaded._functions] == [LOADED]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("pytube_nowhere:slim", "there is no module pytube_nowhere; install it, or put"),
        (f"{__name__}:nowhere", f"module {__name__} has no nowhere"),
        (f"{__name__}:number", "number is a int, which can't be called"),
        (f"{__name__}:Trip", "Trip is a class"),
        (f"{__name__}:waits", "it is a coroutine function; define it with def"),
    ],
)
def test_functions_that_are_refused(target: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(LOADED, target)
    assert str(caught.value).startswith(f'key tube."es-live".transforms = "{target}": {says}')
