"""The checker: takes one window after the other, and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from pytube.model import Token
from pytube.sinks.jsonl import Line
from tests.crash.chaos import of_queue, of_sends, of_terms
from tests.crash.chaos.invariants import Invariant, Violation
from tests.crash.chaos.records import Key, Window

_MOST = 5
"""Examples of each kind."""


class Ledger:
    """What is known of one tube's sink after the windows so far. Memory grows with the keys."""

    def __init__(self) -> None:
        self._arrived: dict[Key, Line] = {}
        self._highest: dict[Key, Line] = {}
        self._answered: dict[Key, tuple[Token, bool]] = {}
        """The highest token that was answered, and whether with a refusal."""
        self._epochs: dict[int, int] = {}
        """The latest epoch that wrote to each shard."""

    def take(self, window: Window) -> list[Violation]:
        """Add a window; what is wrong, with a few examples of each kind."""
        checks = [
            (Invariant.IN_ORDER, self._write(window)),
            (Invariant.PARKED, self._park(window)),
            (Invariant.EQUAL, self._compare(window)),
            (Invariant.CAPTURED, of_queue.uncaptured(window)),
            (Invariant.EMPTY, of_queue.left(window)),
            (Invariant.ACKNOWLEDGED, of_queue.unacknowledged(window)),
            (Invariant.PURGED_IN_TERM, of_queue.purged_by_strangers(window)),
            (Invariant.ALONE, of_sends.concurrent(window)),
            (Invariant.RECORDED, of_terms.unrecorded(window)),
            (Invariant.TRUSTED, of_terms.untrusted(window)),
            (Invariant.WAITED, of_terms.hasty(window)),
        ]
        return [
            Violation(invariant, f"{window.tube}: {what}")
            for invariant, found in checks
            for what in islice(found, _MOST)
        ]

    def _write(self, window: Window) -> list[str]:
        """Apply the lines. All of them, so not as an iterator that somebody may leave early."""
        wrong = []
        for line in window.lines:
            key, epoch = (line.shard, line.id), line.token.epoch
            latest = self._epochs.get(line.shard, 0)
            before = self._arrived.get(key)
            if epoch < latest:
                wrong.append(f"{_name(line)} came after a line of epoch {latest} to its shard")
            elif before is not None and line.token <= before.token:
                wrong.append(f"{_name(line)} came after {_name(before)}")
            self._epochs[line.shard] = max(latest, epoch)
            self._arrived[key] = line
            highest = self._highest.get(key)
            if highest is None or highest.token <= line.token:
                self._highest[key] = line
        return wrong

    def _park(self, window: Window) -> list[str]:
        """Note what was answered last, and compare refusals with what is parked."""
        for call in window.calls:
            for key in call.answered:
                known = self._answered.get(key)
                if known is None or known[0] < call.token:
                    self._answered[key] = call.token, key in call.refused
        return [
            f"key {key} is {'parked' if key in window.parked else 'not parked'}, answered last: "
            f"{self._answered.get(key)}"
            for key in sorted(self._refused() ^ window.parked)
        ]

    def _refused(self) -> set[Key]:
        return {key for key, (_, refused) in self._answered.items() if refused}

    def _compare(self, window: Window) -> Iterator[str]:
        refused = self._refused()
        for how, held in (("by arrival", self._arrived), ("by token", self._highest)):
            documents = {key: line.doc for key, line in held.items() if not line.is_delete}
            for key in sorted(window.rows.keys() | documents.keys()):
                wanted, found = window.rows.get(key), documents.get(key)
                # What was refused last is not at the sink, or is as it was before.
                if wanted != found and key not in refused:
                    yield f"key {key}, {how}: source {wanted}, sink {found}"


def _name(line: Line) -> str:
    return f"key {(line.shard, line.id)} of token {tuple(line.token)} at {line.at:.6f}"
