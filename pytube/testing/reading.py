"""The part of the conformance suite for what a sink may offer: reading back, marks, notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytube.comparison import decode
from pytube.model import Batch, Key, Token
from pytube.sinks.base import (
    READ_MOST,
    Making,
    Marked,
    Noting,
    Stored,
    held_forms,
    notes_of_the_suite,
    why_no_mark,
    why_no_note,
    why_no_read,
)
from pytube.sinks.parts import open_existing
from pytube.testing.harness import ODD_DOCUMENTS, ODD_TEXTS, TUBE, SinkHarness, batch, expect, in_loop, skip


class OfferChecks(SinkHarness):
    """What was written is read, as `as_held` says, with its stamp or without; marks go with documents."""

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
