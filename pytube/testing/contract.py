"""The conformance suite: a class of tests that the author of a sink inherits from."""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from pytube.comparison import decode
from pytube.errors import PytubeError, SinkError, SinkUnavailable
from pytube.model import Batch, Key, Ok, Reject, Retry, Stale, Token
from pytube.sinks.base import (
    PAGE,
    READ_MOST,
    Making,
    Marked,
    Noting,
    Sink,
    Stored,
    held_forms,
    notes_of_the_suite,
    why_no_mark,
    why_no_note,
    why_no_read,
    why_no_scan,
)
from pytube.sinks.parts import open_existing
from pytube.testing.harness import (
    ODD_DOCUMENTS,
    ODD_TEXTS,
    TUBE,
    SinkHarness,
    batch,
    begun,
    cancelled,
    expect,
    in_loop,
    skip,
)


class SinkContract(SinkHarness):
    """Inherit in a class `Test…` and give `make_sink` and `read_back`; pytest finds the tests.

    The other methods of `SinkHarness` make some checks sharper; give the ones that the store allows. Checks
    that a sink does not offer, or the suite can't judge, are skipped with the reason: they were not tested.
    """

    # --- writing: content, order, tokens, answers ----------------------------------------------

    @in_loop
    async def test_empty_batch(self) -> None:
        """No document, no result, no error."""
        async with self.opened() as sink:
            expect(len(await sink.send(batch({}))) == 0, "an empty batch got a result")
        await self.expect_values({}, "after an empty batch")

    @in_loop
    async def test_upsert_delete_upsert(self) -> None:
        """Each takes the place of the one before; to delete a missing document is Ok."""
        async with self.opened() as sink:
            await self.write_ok(sink, batch({1: {"v": 1}, 2: {"v": 1}}, token=(1, 1)))
            await self.expect_values({(0, 1): {"v": 1}, (0, 2): {"v": 1}}, "after upserts")
            await self.write_ok(sink, batch({1: None, 3: None}, token=(1, 2)))
            await self.expect_values({(0, 2): {"v": 1}}, "after deletes")
            await self.write_ok(sink, batch({1: {"w": 3}}, token=(1, 3)))
            await self.expect_values({(0, 1): {"w": 3}, (0, 2): {"v": 1}}, "after an upsert")

    @in_loop
    async def test_one_result_per_document_in_order(self) -> None:
        """A mixed batch is answered document by document."""
        async with self.opened() as sink:
            for at in range(4):
                token = Token(2, at)
                if sink.compares:
                    await self.write_ok(sink, batch({100 + at: {"v": 9}}, token=(9, at)))
                mixed = {key: {"v": key} for key in (1, 2, 3)}
                keys = [*mixed][:at] + ([100 + at] if sink.compares else []) + [*mixed][at:]
                values = {key: mixed.get(key, {"v": 0}) for key in keys}
                results = await self.write(sink, batch(values, token=token))
                for key, result in zip(keys, results, strict=True):
                    kind = Stale if key >= 100 else Ok
                    expect(isinstance(result, kind), f"{key} of {keys}: {result!r:.200}")

    @in_loop
    async def test_rejected_document(self) -> None:
        """The other documents of its batch are written."""
        bad = self.rejected_value()
        if bad is None:
            skip("rejected_value() gives no value that the sink rejects")
        async with self.opened() as sink:
            results = await self.write(sink, batch({1: {"v": 1}, 2: bad, 3: {"v": 3}}))
            kinds = [type(result) for result in results]
            expect(kinds == [Ok, Reject, Ok], f"one rejected document: {results!r:.200}")
        await self.expect_values({(0, 1): {"v": 1}, (0, 3): {"v": 3}}, "beside a rejected document")

    @in_loop
    async def test_leaves_the_batch_alone(self) -> None:
        """The caller may send the same batch again."""
        sent = batch({1: {"v": 1}, 2: None}, token=(1, 1))
        # By their fields: two batches are never equal.
        before = copy.deepcopy(astuple(sent))
        async with self.opened() as sink:
            await self.write_ok(sink, sent)
            expect(astuple(sent) == before, "send changed the batch that it was given")
            await self.write_ok(sink, sent)
        await self.expect_values({(0, 1): {"v": 1}}, "after the same batch twice")

    @in_loop
    async def test_lower_token_does_not_win(self) -> None:
        """Where the sink compares: the newer write stays, a tombstone too, and is reported."""
        async with self.opened() as sink:
            if not sink.compares:
                skip("the sink does not compare tokens")
            for held in (Token(5, 3), Token(1 << 30, 3)):
                await self.write_ok(sink, batch({1: {"v": "new"}, 2: None}, token=held))
                for late in (Token(4, 9), Token(held.epoch - 1, (1 << 28) - 1), Token(held.epoch, 2)):
                    for value in ({"v": "late"}, None):
                        await self._expect_late(sink, late, held, value)
            await self.write_ok(sink, batch({2: {"v": "next"}}, token=(1 << 30, 4)))
            await self.expect_values({(0, 1): {"v": "new"}, (0, 2): {"v": "next"}}, "after a newer write")

    async def _expect_late(self, sink: Sink, late: Token, held: Token, value: object) -> None:
        results = await self.write(sink, batch({1: value, 2: value}, token=late))
        for result in results:
            if late.epoch == held.epoch and isinstance(result, Ok):
                continue
            expect(
                result == Stale(int(held)),
                f"{late} after {held}: {result!r:.200}, expected Stale({int(held)})",
            )
        await self.expect_values({(0, 1): {"v": "new"}}, f"after {late} came later than {held}")

    @in_loop
    async def test_acknowledged_writes_keep_their_order(self) -> None:
        """The store holds the write answered last, with other keys written beside it."""
        async with self.opened() as sink:

            async def one(shard: int) -> None:
                for counter in range(1, 26):
                    value = None if counter % 5 == 0 else {"v": counter}
                    values = {(shard, id_): value for id_ in range(3)}
                    await self.write_ok(sink, batch(values, token=(1, counter)))
                await self.write_ok(sink, batch({(shard, 0): {"v": 26}}, token=(1, 26)))

            await asyncio.gather(*(one(shard) for shard in range(4)))
            expected: dict[Key, Any] = {(shard, 0): {"v": 26} for shard in range(4)}
            await self.expect_values_stay(expected, "after 26 writes of each key")

    @in_loop
    async def test_concurrent_sends_of_different_keys(self) -> None:
        """Sends at the same time do not mix."""
        expected: dict[Key, Any] = {(s, i): {"text": f"{s}/{i}" * 50} for s in range(8) for i in range(100)}
        running, most = 0, 0

        async def one(shard: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            part = {key: value for key, value in expected.items() if key[0] == shard}
            await self.write_ok(sink, batch(part, token=(1, shard), partition=shard))
            running -= 1

        async with self.opened() as sink:
            await asyncio.gather(*(one(shard) for shard in range(8)))
        await self.expect_values(expected, "after 8 sends at once")
        if most == 1:
            skip("each send ended before the next one began: the sink never waits in the event loop")

    @in_loop
    async def test_odd_documents(self) -> None:
        """Every key and text that Postgres may hold arrives as it is."""
        sent = batch(ODD_DOCUMENTS, token=(1, 1))
        async with self.opened() as sink:
            await self.write_ok(sink, sent)
        expected = {document.key: document.value() for document in sent}
        await self.expect_values(expected, "odd documents")

    @in_loop
    async def test_keys_that_are_texts(self) -> None:
        """Whatever text names a document: each is distinct, is written over, and is deleted."""
        expected: dict[Key, Any] = {(0, text): {"n": at} for at, text in enumerate(ODD_TEXTS)}
        async with self.opened() as sink:
            await self.write_ok(sink, batch(expected))
            await self.expect_values(expected, "keys that are texts")
            last, *others = reversed(expected)
            expected[last] = {"n": "again"}
            for key in others[::2]:
                del expected[key]
            again = batch(dict.fromkeys(others[::2]) | {last: {"n": "again"}}, token=(1, 2))
            await self.write_ok(sink, again)
        await self.expect_values(expected, "after some of them were deleted")

    @in_loop
    async def test_large_documents(self) -> None:
        """One of `largest` bytes, and a batch of 2000 small ones."""
        large = {"text": "ä" * ((self.largest - 100) // 2)}
        many: dict[Key, Any] = {(1, id_): {"n": id_} for id_ in range(2000)}
        async with self.opened() as sink:
            await self.write_ok(sink, batch({1: large}), batch(many))
        await self.expect_values({(0, 1): large, **many}, "large documents")

    @in_loop
    async def test_results_are_results(self) -> None:
        """Every answer is an Ok, Retry, Reject or Stale."""
        async with self.opened() as sink:
            for result in await self.write(sink, batch({1: {}, 2: None})):
                expect(isinstance(result, Ok | Retry | Reject | Stale), f"got {result!r}")

    # --- opening, closing, late and cancelled sends ---------------------------------------------

    def test_has_the_shape_of_a_sink(self) -> None:
        """It has every method, and says whether it compares."""
        sink = self.make_sink()
        expect(isinstance(sink, Sink), "one of compares, open, send, abandon, close is missing")
        expect(isinstance(sink.compares, bool), f"compares is {sink.compares!r}, not a bool")

    @in_loop
    async def test_open_and_close_can_be_repeated(self) -> None:
        """Each does nothing the second time, close also before open; open works after close."""
        sink = self.make_sink()
        await sink.close()
        for round_ in (1, 2):
            await sink.open()
            await sink.open()
            await self.write_ok(sink, batch({1: {"round": round_}}, token=(1, round_)))
            await sink.close()
            await sink.close()
        await self.expect_values({(0, 1): {"round": 2}}, "after opening again")

    @in_loop
    async def test_close_after_open_failed(self) -> None:
        """A failed open reports the fault, and close is quiet."""
        sink = self.unopenable_sink()
        if sink is None:
            skip("unopenable_sink() gives none")
        try:
            await sink.open()
        except PytubeError:
            pass
        except Exception as error:
            raise AssertionError(f"open raised {error!r}, expected ConfigError or SinkUnavailable") from error
        else:
            raise AssertionError("open of the unopenable sink did not raise")
        await sink.close()
        await self.expect_refused(lambda: sink.send(batch({1: {}})), "after open failed")

    @in_loop
    async def test_send_needs_an_open_sink(self) -> None:
        """Before open and after close it refuses, and writes nothing."""
        sink = self.make_sink()
        await self.expect_refused(lambda: sink.send(batch({1: {}})), "before open")
        await sink.open()
        await sink.close()
        await self.expect_refused(lambda: sink.send(batch({2: {}})), "after close")
        await self.expect_values_stay({}, "after refused sends")

    @in_loop
    async def test_send_before(self) -> None:
        """After that moment it writes nothing, and says that it did not."""
        async with self.opened() as sink:
            await self.write_ok(sink, batch({1: {"v": 1}}, send_before=time.monotonic() + self.limit))
            late = batch({1: {"v": 2}, 2: {}}, token=(1, 2), send_before=time.monotonic())
            await self.expect_refused(lambda: sink.send(late), "after send_before")
            await self.expect_values_stay({(0, 1): {"v": 1}}, "after a send that came too late")

    @in_loop
    async def test_abandoned_send_has_no_later_effect(self) -> None:
        """After cancelling and `abandon`, a newer write stays."""
        async with self.opened() as sink:
            await sink.abandon(batch({1: {}}))  # never sent: returns at once
            tested = False
            text = "x" * min(200_000, self.largest // 2)
            for at, pause in enumerate((0.0, 0.0005, 0.002, 0.01, 0.05), start=1):
                old = batch({1: {"old": at, "text": text}, 2: None}, token=(at, 1))
                stalled = self.stall()
                task = await begun(sink.send(old), pause)
                unanswered = await cancelled(task)
                tested |= unanswered
                abandon = asyncio.create_task(sink.abandon(old))
                await asyncio.wait({abandon}, timeout=0.01)
                self.unstall()
                expect(unanswered or not stalled, "a send was answered while all stalled")
                await abandon
                new: dict[Key, Any] = {(0, 1): {"new": at}, (0, 2): {"new": at}}
                await self.write_ok(sink, batch(new, token=(at, 2)))
                await self.expect_values_stay(new, f"send cancelled after {pause} s")
            if not tested:
                skip("each send was answered before it could be cancelled; give stall()")

    @in_loop
    async def test_event_loop_goes_on_while_the_store_hangs(self) -> None:
        """A send never holds up the event loop."""
        async with self.opened() as sink:
            if not self.stall():
                skip("stall() can't make the store hang, so a send that blocks would not be noticed")
            sent = batch({1: {}})
            ticking = threading.Event()
            asyncio.get_running_loop().call_later(0.05, ticking.set)
            watcher = threading.Thread(target=self._watch, args=(ticking,), daemon=True)
            watcher.start()
            await cancelled(await begun(sink.send(sent), 0.1))
            self.unstall()
            watcher.join()
            await sink.abandon(sent)
            expect(not self._stuck, "the event loop stood still while the store hung")

    _stuck = False

    def _watch(self, ticking: threading.Event) -> None:
        """Note that the loop stands still, and let the store continue so that the test can end."""
        self._stuck = not ticking.wait(self.limit / 4)
        if self._stuck:
            self.unstall()

    @in_loop
    async def test_close_while_a_send_runs(self) -> None:
        """Close returns, the send ends, and an answer Ok means that the write is there."""
        value = {"text": "x" * min(200_000, self.largest // 2)}
        tested = False
        for at, pause in enumerate((0.0, 0.001, 0.01), start=1):
            sink = self.make_sink()
            await sink.open()
            before = await self.values()
            sent = batch({at: value}, token=(1, at))
            task = await begun(sink.send(sent), pause)
            tested |= not task.done()
            await sink.close()
            await asyncio.wait({task})
            error = task.exception()
            if error is None:
                await self.expect_values({**before, (0, at): value}, "Ok, and then closed")
            else:
                expect(isinstance(error, SinkError), f"close made send raise {error!r}")
            if isinstance(error, SinkUnavailable):
                await self.expect_values_stay(before, "SinkUnavailable, and then closed")
        if not tested:
            skip("each send was answered before the sink could be closed")

    # --- scans ------------------------------------------------------------------------------------

    @in_loop
    async def test_scan_finds_what_is_older(self) -> None:
        """Documents of the shard with a lower stamp; not newer or deleted ones, or ones of another shard."""
        async with self.offering("scan", why_no_scan) as sink:
            await self.write_ok(
                sink,
                batch({(0, 1): {"v": 1}, (0, 2): {"v": 1}, (0, 3): {"v": 1}, (1, 4): {"v": 1}}, seq=5),
                batch({(0, 5): {"v": 1}}, token=(1, 2), seq=10),
                batch({(0, 2): {"v": 2}}, token=(1, 3), seq=11),
                batch({(0, 3): None}, token=(1, 4), seq=6),
            )
            await self._expect(sink, 0, 10, {1})
            await self._expect(sink, 0, 11, {1, 5})
            await self._expect(sink, 1, 10, {4})
            await self._expect(sink, 2, 10, set())

    @in_loop
    async def test_scan_after_more_was_written(self) -> None:
        """A second look sees documents written since the first."""
        async with self.offering("scan", why_no_scan) as sink:
            await self.write_ok(sink, batch({1: {"v": 1}, 2: {"v": 1}}, seq=5))
            await self._expect(sink, 0, 10, {1, 2})
            await self.write_ok(sink, batch({1: {"v": 2}, 7: {"v": 1}}, token=(1, 2), seq=6))
            await self._expect(sink, 0, 6, {2})
            await self._expect(sink, 0, 7, {1, 2, 7})

    @in_loop
    async def test_scan_sees_what_another_sink_wrote(self) -> None:
        """The one who sweeps need not be the one who wrote."""
        async with self.opened() as first:
            await self.write_ok(first, batch({1: {"v": 1}}, seq=5))
        async with self.offering("scan", why_no_scan) as sink:
            await self._expect(sink, 0, 10, {1})

    @in_loop
    async def test_scan_of_many_comes_in_pages(self) -> None:
        """None is left out between two pages, and none is too long; least and greatest ids are found."""
        ids = {*range(PAGE * 2 + 1), -(2**63), 2**63 - 1}
        async with self.offering("scan", why_no_scan) as sink:
            wanted = sorted(ids)
            for start in range(0, len(wanted), 1000):
                part = wanted[start : start + 1000]
                documents: dict[int, object] = {key: {} for key in part}
                await self.write_ok(sink, batch(documents, token=(1, start + 1), seq=1))
            await self._expect(sink, 0, 2, ids)

    @in_loop
    async def test_scan_of_keys_that_are_texts(self) -> None:
        """They are found as they were written, over the end of a page, too."""
        texts = sorted({*ODD_TEXTS, *(f"k{number}" for number in range(PAGE))})
        async with self.offering("scan", why_no_scan) as sink:
            for start in range(0, len(texts), 1000):
                documents: dict[str, object] = {key: {} for key in texts[start : start + 1000]}
                await self.write_ok(sink, batch(documents, token=(1, start + 1), seq=1))
            await self.write_ok(sink, batch({"k1": None}, token=(2, 1), seq=1))
            await self._expect(sink, 0, 2, {*texts} - {"k1"})

    async def _expect(self, sink: Any, shard: int, below_seq: int, ids: set[Any]) -> None:
        found: list[Any] = []
        async for page in sink.scan(TUBE.get(), shard, below_seq):
            expect(len(page) <= PAGE, f"a page of {len(page)} ids, and {PAGE} are allowed")
            found += page
        missing, strange = ids - set(found), set(found) - ids
        where = f"scan of shard {shard} below {below_seq}"
        expect(not missing, f"{where}: {sorted(missing)[:5]} are missing")
        expect(not strange, f"{where}: {sorted(strange)[:5]} should not be found")

    # --- reading back, as `as_held` says, with a stamp or without ----------------------------------

    @in_loop
    async def test_read_gives_what_was_written(self) -> None:
        """Documents at the limits of Postgres' types; not deleted ones, nor ones that never were."""
        sent = batch(ODD_DOCUMENTS, token=(1, 1), seq=5)
        async with self.offering("reading", why_no_read) as sink:
            await self.write_ok(sink, sent)
            await self._expect_read(sink, sent)
            await self.write_ok(sink, batch({(0, 0): None, (0, -1): {"v": 2}}, token=(1, 2), seq=6))
            found = await sink.read(TUBE.get(), [(0, 0), (0, -1), (0, 77), (7, 0)])
            expect(len(found) == 4, f"{len(found)} answers for 4 keys")
            for gone in ((0, 0), (0, 77), (7, 0)):
                expect(not found[gone].exists, f"{gone} is read, and is not there")
            expect(found[7, 0].token is None, "a key that was never written has a token")
            expect(found[0, 0].token in (None, Token(1, 2)), f"a delete has {found[0, 0].token}")
            await self._expect_read(sink, batch({(0, -1): {"v": 2}}, token=(1, 2), seq=6))

    @in_loop
    async def test_read_of_keys_that_are_texts(self) -> None:
        """Each is distinct."""
        sent = batch({text: {"n": at} for at, text in enumerate(ODD_TEXTS)})
        async with self.offering("reading", why_no_read) as sink:
            await self.write_ok(sink, sent)
            await self._expect_read(sink, sent)

    @in_loop
    async def test_read_of_many_that_another_sink_wrote(self) -> None:
        """As many keys as may be asked for; by anyone who has the sink open."""
        sent = batch({key: {"n": key} for key in range(READ_MOST)})
        async with self.offering("reading", why_no_read) as sink:
            async with self.opened() as other:
                await self.write_ok(other, sent)
            await self._expect_read(sink, sent)
            await sink.close()
            await self.expect_refused(lambda: sink.read(TUBE.get(), [(0, 1)]), "read after close")

    async def _expect_read(self, sink: Any, sent: Batch) -> None:
        bodies = [document.body or b"" for document in sent]
        held = await held_forms(sink, bodies)
        expect(len(held) == len(bodies), f"as_held gave {len(held)} documents for {len(bodies)}")
        found = await sink.read(TUBE.get(), [document.key for document in sent])
        for document, body in zip(sent, held, strict=True):
            expect(body is not None, f"as_held says that {document.key} is rejected, and it was written")
            expected = None if body is None else decode(body)
            self._expect_document(found, document.key, expected)
            stored = found[document.key]
            expect(stored.token in (None, document.token), f"{document.key} is read with {stored.token}")
            expect(stored.seq in (None, document.seq), f"{document.key} is read with seq {stored.seq}")

    def _expect_document(self, found: Mapping[Key, Stored], key: Key, expected: Any) -> None:
        expect(key in found, f"{key} has no answer")
        expect(found[key].exists, f"{key} is there, and is not read")
        value = found[key].value
        expect(value == expected, f"{key} is read as {value!r:.200}, expected {expected!r:.200}")
        expect(decode(found[key].body or b"") == expected, f"{key}: body and value differ")

    # --- marks and notes ----------------------------------------------------------------------

    @in_loop
    async def test_open_existing(self) -> None:
        """It opens existing objects, and else names the missing ones, and leaves the sink closed."""
        sink = self.make_sink()
        if not isinstance(sink, Making):
            skip("the sink has no open_existing: nothing is made by `open`")
        for _ in range(2):
            if await open_existing(sink) is not None:
                await self.expect_refused(
                    lambda: sink.send(batch({1: {}})), "after open_existing found nothing"
                )
        await sink.close()
        async with self.opened():
            pass
        expect(await open_existing(sink) is None, "open_existing does not find what open has made")
        await self.write_ok(sink, batch({1: {"v": 1}}))
        await sink.close()
        await self.expect_values({(0, 1): {"v": 1}}, "after open_existing")

    @in_loop
    async def test_mark_stays(self) -> None:
        """While documents come and go; for every sink of the place. An existing one is not overwritten."""
        async with self.offering("mark", why_no_mark) as sink:
            mark = await self._mark(sink, "first")
            await self.write_ok(sink, batch({1: {"v": 1}, 2: {"v": 1}}, token=(1, 1)))
            await self.write_ok(sink, batch({1: None, 2: None}, token=(1, 2)))
            await sink.write_mark(TUBE.get(), "second")
            async with self.offering("mark", why_no_mark) as other:
                for one in (sink, other):
                    expect(await one.read_mark(TUBE.get()) == mark, "the mark is another one")
            await sink.close()
            await self.expect_refused(lambda: sink.read_mark(TUBE.get()), "read_mark after close")
        await self.expect_values({}, "beside a mark")

    @in_loop
    async def test_mark_goes(self) -> None:
        """With the documents."""
        async with self.offering("mark", why_no_mark) as sink:
            mark = await self._mark(sink, "first")
            await self.write_ok(sink, batch({1: {"v": 1}}))
            if not await self.lose():
                skip("lose() does not say how this store loses its documents")
            expect(await sink.read_mark(TUBE.get()) != mark, "the mark is there, and the documents are gone")
            again = await self._mark(sink, "second")
            expect(again != mark, "the emptied store still has its old mark")
            await self.write_ok(sink, batch({1: {"v": 2}}, token=(1, 2)))
        await self.expect_values({(0, 1): {"v": 2}}, "after the loss")

    @in_loop
    async def test_note(self) -> None:
        """The last one of each key is there for every sink of the place; mark and documents stay."""
        async with self.offering("mark", why_no_mark) as sink:
            if (why := why_no_note(sink)) is not None:
                skip(f"no note: {why}")
            mark = await self._mark(sink, "first")
            await self.write_ok(sink, batch({1: {"v": 1}}))
            ours, others = notes_of_the_suite(TUBE.get())
            left: dict[str, str | None] = {ours: None, others: None}
            for key, text in ((ours, "seq 7"), (others, "seq 900"), (ours, "seq 12")):
                await sink.write_note(key, text)
                left[key] = text
                async with self.opened() as other:
                    assert isinstance(other, Noting)
                    held = {key: await other.read_note(key) for key in left}
                    expect(held == left, f"the notes are {held}, and {left} were left")
            expect(await sink.read_mark(TUBE.get()) == mark, "a note has changed the mark")
        await self.expect_values({(0, 1): {"v": 1}}, "beside a note")

    async def _mark(self, sink: Marked, wanted: str) -> str:
        """The mark, left if there is none."""
        mark = await sink.read_mark(TUBE.get())
        if mark is None:
            await sink.write_mark(TUBE.get(), wanted)
            mark = await sink.read_mark(TUBE.get())
        assert mark is not None, "write_mark has left no mark"
        return mark
