"""Calls that block, in threads that nothing else waits for.

`asyncio.to_thread` and `loop.getaddrinfo` share the default executor of the event loop, a handful of threads,
with all code of the process: with the resolver, with drivers of sinks, with user code. A few calls that
hang there, and every other one waits behind them: a tube whose sink hangs would keep all others from a new
connection to Postgres. Here each call has a separate daemon thread, which does not hold up the exit either.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Handed(Generic[T]):
    """A future of the running event loop that another thread ends. Whatever ends it first counts."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()

    def end(self, result: T | None = None, error: BaseException | None = None) -> None:
        """End it, with an error where there is one; from any thread."""
        with suppress(RuntimeError):  # the loop may be closed when something that was left to itself ends
            self._loop.call_soon_threadsafe(self._end, result, error)

    def _end(self, result: T | None, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
            self.future.exception()  # retrieved: it may have no reader
        else:
            self.future.set_result(result)  # type: ignore[arg-type] # of T, when there is no error


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result; raises its error. If cancelled, the call is left running."""
    answer = Handed[T]()

    def run() -> None:
        try:
            answer.end(function(*args, **kwargs))
        except BaseException as raised:  # noqa: BLE001 # carried to who waits
            answer.end(error=raised)

    threading.Thread(target=run, name=f"pytube-{function.__name__}", daemon=True).start()
    return await answer.future


async def resolve(host: str, port: int | None = None) -> list[str]:
    """The addresses of a host, by the system's resolver; `OSError` when it has none."""
    found: list[tuple[Any, ...]] = await in_thread(
        socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Resolver:
    """Looks names up for one client: with a limit of time, and in one thread for each name.

    All callers that ask for a name wait for the same lookup. So a client that keeps retrying a name whose
    lookup hangs has no more threads than names.
    """

    def __init__(self, limit: float) -> None:
        """`limit`: seconds for a lookup."""
        self._limit = limit
        self._under_way: dict[str, asyncio.Future[list[str]]] = {}

    async def resolve(self, host: str) -> list[str]:
        """The addresses of a host; `OSError` when it has none, or none is known in time."""
        if is_address(host):
            return [host]
        if host not in self._under_way:
            self._under_way[host] = asyncio.ensure_future(resolve(host))
            self._under_way[host].add_done_callback(lambda lookup: self._forget(host, lookup))
        try:
            async with asyncio.timeout(self._limit):
                return await asyncio.shield(self._under_way[host])
        except TimeoutError:
            reason = f"the name {host!r} was not resolved within {self._limit:g} s"
            raise socket.gaierror(socket.EAI_AGAIN, reason) from None

    def _forget(self, host: str, lookup: asyncio.Future[list[str]]) -> None:
        del self._under_way[host]
        if not lookup.cancelled():
            lookup.exception()  # it may have no waiter any more


def is_address(host: str) -> bool:
    """Whether it is an address, and not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
