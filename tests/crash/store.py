"""A store over the network that misbehaves: it answers late, twice, wrongly, or for half a batch.

It runs in the test, so it outlives the workers, and what they have sent takes effect whether they
live or not. It keeps two copies: one that compares tokens, and one in which the last write wins.
"""

from __future__ import annotations

import json
import random
import socketserver
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from tests.crash.journal_sink import is_rejected

Key = tuple[int, int]
Write = tuple[int, int, int, dict[str, Any] | None]
"""Shard, id, token, row."""


class Fault(StrEnum):
    """What may befall a request; without one it is written and answered."""

    LATE = "late"
    """Nothing happens for `delay` seconds, then it is written and answered."""
    TWICE = "twice"
    """It is written and answered, and written once more `delay` seconds later."""
    HALF = "half"
    """Half of it is written; the other half is put off."""
    SHORT = "short"
    """It is written, and one result is missing."""
    LONG = "long"
    """It is written, and there is one result too many."""
    ERROR = "error"
    """It is written, and answered with an error."""
    OUT_OF_ORDER = "out of order"
    """It waits until a later request of the same worker was written, or for `delay` seconds."""


ALL = tuple(Fault)


@dataclass
class Store:
    """Listens on loopback; `port` says where."""

    faults: tuple[Fault, ...]
    rate: float = 0.25
    """Which part of all requests meets a fault."""
    delay: float = 2.0
    compared: dict[Key, tuple[int, dict[str, Any] | None]] = field(default_factory=dict)
    arrived: dict[Key, dict[str, Any] | None] = field(default_factory=dict)
    rejected: dict[Key, bool] = field(default_factory=dict)
    """Whether the write with the highest token was refused, of each key that ever was."""
    struck: dict[Fault, int] = field(default_factory=dict)
    requests: int = 0
    clients: set[str] = field(default_factory=set)
    """Who has written since this was last emptied."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._later = threading.Condition(self._lock)
        self._pending = 0
        self._draw = random.Random(0)
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def is_quiet(self) -> bool:
        """Whether all that was sent has taken effect."""
        return self._pending == 0

    def heal(self) -> None:
        """No more faults."""
        self.faults = ()

    def rows(self, *, by_token: bool) -> dict[int, Any]:
        """What the store holds, by id."""
        with self._lock:
            if not by_token:
                return {key[1]: row for key, row in self.arrived.items() if row is not None}
            return {key[1]: row for key, (_, row) in self.compared.items() if row is not None}

    # --- one request ----------------------------------------------------------------------

    def _handler(self) -> type[socketserver.StreamRequestHandler]:
        store = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    answer = store._take(json.loads(line))  # it is a part of the store
                    try:
                        self.wfile.write(json.dumps(answer).encode() + b"\n")
                        self.wfile.flush()
                    except OSError:
                        return  # the worker gave up, or is dead

        return Handler

    def _take(self, request: dict[str, Any]) -> object:
        """Write as the fault of the request has it; the answer."""
        writes: list[Write] = [(*write,) for write in request["writes"]]
        with self._lock:
            self.requests += 1
            self._pending += 1
            fault = self._fault()
        try:
            match fault:
                case Fault.LATE:
                    threading.Event().wait(self.delay)
                case Fault.TWICE:
                    self._once_more(writes)
                case Fault.OUT_OF_ORDER:
                    self._let_others_pass()
                case Fault.HALF:
                    half = len(writes) // 2
                    results = self._write(writes[:half], request["client"])
                    return results + [["retry"]] * (len(writes) - half)
            results = self._write(writes, request["client"])
        finally:
            with self._lock:
                self._pending -= 1
        match fault:
            case Fault.SHORT:
                return results[:-1]
            case Fault.LONG:
                return [*results, ["ok"]]
            case Fault.ERROR:
                return "an error after the write"
        return results

    def _fault(self) -> Fault | None:
        if not self.faults or self._draw.random() >= self.rate:
            return None
        fault = self._draw.choice(self.faults)
        self.struck[fault] = self.struck.get(fault, 0) + 1
        return fault

    def _once_more(self, writes: list[Write]) -> None:
        self._pending += 1

        def write() -> None:
            self._write(writes, "")
            with self._lock:
                self._pending -= 1

        timer = threading.Timer(self.delay, write)
        timer.daemon = True
        timer.start()

    def _let_others_pass(self) -> None:
        with self._lock:
            asked = self.requests
            self._later.wait_for(lambda: self.requests > asked + 1, self.delay / 4)

    def _write(self, writes: list[Write], client: str) -> list[list[Any]]:
        results: list[list[Any]] = []
        with self._lock:
            if client:
                self.clients.add(client)
            for shard, number, token, row in writes:
                results.append(self._write_one((shard, number), token, row))
            self._later.notify_all()
        return results

    def _write_one(self, key: Key, token: int, row: dict[str, Any] | None) -> list[Any]:
        held = self.compared.get(key, (-1, None))[0]
        refused = is_rejected(key[1], row)
        if not refused:
            self.arrived[key] = row
        if held > token:
            return ["stale", held]
        if key in self.rejected or refused:
            self.rejected[key] = refused
        # What is refused leaves the copy as it was, but no older write may come after it.
        self.compared[key] = (token, self.compared.get(key, (0, None))[1] if refused else row)
        return ["reject"] if refused else ["ok"]
