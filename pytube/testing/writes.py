"""What a sink makes of the documents it is given."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import astuple
from typing import Any

from pytube.model import Key, Ok, Reject, Retry, Stale, Token
from pytube.sinks.base import Sink
from pytube.testing.batches import batch
from pytube.testing.harness import SinkHarness, expect
from pytube.testing.odd import ODD_DOCUMENTS, ODD_TEXTS


class WriteChecks(SinkHarness):
    """Content, order, tokens and answers."""

    def test_empty_batch(self) -> None:
        """No document, no result, no error."""

        async def check() -> None:
            async with self.opened() as sink:
                expect(len(await sink.send(batch({}))) == 0, "an empty batch got a result")
            await self.expect_values({}, "after an empty batch")

        self.run(check())

    def test_upsert_delete_upsert(self) -> None:
        """Each takes the place of the one before; to delete what is not there is Ok."""

        async def check() -> None:
            async with self.opened() as sink:
                await self.write_ok(sink, batch({1: {"v": 1}, 2: {"v": 1}}, token=(1, 1)))
                await self.expect_values({(0, 1): {"v": 1}, (0, 2): {"v": 1}}, "after upserts")
                await self.write_ok(sink, batch({1: None, 3: None}, token=(1, 2)))
                await self.expect_values({(0, 2): {"v": 1}}, "after deletes")
                await self.write_ok(sink, batch({1: {"w": 3}}, token=(1, 3)))
                await self.expect_values({(0, 1): {"w": 3}, (0, 2): {"v": 1}}, "after an upsert")

        self.run(check())

    def test_one_result_per_document_in_order(self) -> None:
        """A mixed batch is answered document by document."""

        async def check() -> None:
            bad = self.rejected_value()
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
                if bad is not None:
                    results = await self.write(sink, batch({1: {}, 2: bad, 3: {}}, token=(3, 1)))
                    kinds = [type(result) for result in results]
                    expect(kinds == [Ok, Reject, Ok], f"one rejected document: {results!r:.200}")

        self.run(check())

    def test_leaves_the_batch_alone(self) -> None:
        """The caller may send the same batch again."""

        async def check() -> None:
            sent = batch({1: {"v": 1}, 2: None}, token=(1, 1))
            # By their fields: two batches are never equal.
            before = copy.deepcopy(astuple(sent))
            async with self.opened() as sink:
                await self.write_ok(sink, sent)
                expect(astuple(sent) == before, "send changed the batch that it was given")
                await self.write_ok(sink, sent)
            await self.expect_values({(0, 1): {"v": 1}}, "after the same batch twice")

        self.run(check())

    def test_lower_token_does_not_win(self) -> None:
        """Where the sink compares: the newer write stays, a tombstone too, and is told of."""

        async def check() -> None:
            async with self.opened() as sink:
                if not sink.compares:
                    return
                for held in (Token(5, 3), Token(1 << 30, 3)):
                    await self.write_ok(sink, batch({1: {"v": "new"}, 2: None}, token=held))
                    for late in (
                        Token(4, 9),
                        Token(held.epoch - 1, (1 << 28) - 1),
                        Token(held.epoch, 2),
                    ):
                        for value in ({"v": "late"}, None):
                            await self._expect_late(sink, late, held, value)
                await self.write_ok(sink, batch({2: {"v": "next"}}, token=(1 << 30, 4)))
                await self.expect_values({(0, 1): {"v": "new"}, (0, 2): {"v": "next"}}, "after a newer write")

        self.run(check())

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

    def test_acknowledged_writes_keep_their_order(self) -> None:
        """What was answered last is what the store holds, with other keys written beside it."""

        async def check() -> None:
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

        self.run(check())

    def test_concurrent_sends_of_different_keys(self) -> None:
        """Sends at the same time do not mix."""

        async def check() -> None:
            expected: dict[Key, Any] = {
                (s, i): {"text": f"{s}/{i}" * 50} for s in range(8) for i in range(100)
            }
            async with self.opened() as sink:
                parts = [{k: v for k, v in expected.items() if k[0] == s} for s in range(8)]
                await asyncio.gather(
                    *(
                        self.write_ok(sink, batch(part, token=(1, at), partition=at))
                        for at, part in enumerate(parts)
                    )
                )
            await self.expect_values(expected, "after 8 sends at once")

        self.run(check())

    def test_odd_documents(self) -> None:
        """Every key and text that Postgres may hold arrives as it is."""

        async def check() -> None:
            sent = batch(ODD_DOCUMENTS, token=(1, 1))
            async with self.opened() as sink:
                await self.write_ok(sink, sent)
            expected = {document.key: document.value() for document in sent}
            await self.expect_values(expected, "odd documents")

        self.run(check())

    def test_keys_that_are_texts(self) -> None:
        """Whatever text names a document: each is one of its own, is written over, and is deleted."""

        async def check() -> None:
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

        self.run(check())

    def test_large_documents(self) -> None:
        """One of `largest` bytes, and a batch of 2000 small ones."""

        async def check() -> None:
            large = {"text": "ä" * ((self.largest - 100) // 2)}
            many: dict[Key, Any] = {(1, id_): {"n": id_} for id_ in range(2000)}
            async with self.opened() as sink:
                await self.write_ok(sink, batch({1: large}), batch(many))
            await self.expect_values({(0, 1): large, **many}, "large documents")

        self.run(check())

    def test_results_are_results(self) -> None:
        """Every answer is an Ok, Retry, Reject or Stale."""

        async def check() -> None:
            async with self.opened() as sink:
                for result in await self.write(sink, batch({1: {}, 2: None})):
                    expect(isinstance(result, Ok | Retry | Reject | Stale), f"got {result!r}")

        self.run(check())
