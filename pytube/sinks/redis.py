"""The sink `redis`: a key per document, written by a script on the server that compares tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Self

import orjson
from redis.exceptions import NoPermissionError, NoScriptError, ReadOnlyError, ResponseError

from pytube.errors import ConfigError, SinkTimeout, SinkUnavailable
from pytube.logs import Logger
from pytube.model import OK, Batch, Id, Key, KeyType, Reject, Result, Retry, Token
from pytube.sinks.base import (
    PAGE,
    Stored,
    Trial,
    in_groups,
    notes_of_the_suite,
    of_the_suite,
    refuse_lapsed,
)
from pytube.sinks.redis_script import (
    RESERVED,
    Call,
    hash_fields,
    hash_tag,
    id_of,
    marks_of,
    member_of,
    note_of,
    payload_of,
    register_of,
    seq_of,
    stamp_of,
    text_of,
    tombstone_of,
)
from pytube.sinks.redis_servers import Command, RedisOptions, Server, Servers
from pytube.sinks.registry import KeyTemplate
from pytube.threads import Resolver

_SCAN_COUNT = 1000
"""Entries of a register that the server looks at in one step of a scan."""
LARGEST = 64 * 1024 * 1024
"""Bytes of a document: the server ends a connection on which it is sent 512 MiB."""
_ERASED = 1000
"""Keys that one command deletes."""
_PAUSE = 1.0
"""Seconds after which documents are sent again whose server took others of the batch."""


class RedisSink:
    """Writes documents as strings or hashes, or deletes the keys of a cache.

    A script compares tokens in one step with the write, so `abandon` returns at once: a late write loses.
    """

    compares = True

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self.template = KeyTemplate(options.key)
        self._servers: Servers | None = None
        self._resolver = Resolver(options.connect_timeout)
        self._log = Logger("pytube.sinks.redis")

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        """The sink for these options; `ConfigError` names a bad one."""
        return cls(RedisOptions.parse("redis", options))

    async def open(self) -> None:
        """Connect, and check what the configuration and the server have to agree about.

        A wrong password counts as unavailable: it can be fixed at the server, without a restart of workers.
        """
        if self._servers is not None:
            return
        servers = Servers(self._options, self._resolver)
        try:
            await servers.refresh()
            for server in servers.all:
                await self._check(server)
        except BaseException as error:
            await servers.close()
            if isinstance(error, SinkTimeout):
                raise SinkUnavailable(str(error)) from error
            raise
        self._servers = servers

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Write the batch, `max_bytes` a round trip."""
        servers = self._opened()
        results: dict[int, Result] = {}
        trouble = ""
        for calls in in_groups(self._calls(batch, results), attrgetter("size"), self._options.max_bytes):
            if not trouble:
                trouble = await self._trip(servers, calls, batch, results)
        if trouble and not results:
            raise SinkUnavailable(trouble)
        return [results.get(at) or Retry(_PAUSE, trouble) for at in range(len(batch))]

    async def abandon(self, batch: Batch) -> None:
        """Return at once: a late write has a lower token, and loses."""

    async def close(self) -> None:
        """Close the connections; a write that has begun continues, and its connection is closed after it."""
        servers, self._servers = self._servers, None
        if servers is not None:
            await servers.close()

    def trial(self, name: str, keys: KeyType) -> Trial:
        """Keys with a separate hash tag, which registers and tombstones have, too."""
        del keys  # a name takes both
        options = self._options.model_copy(update={"key": f"{{{{{name}}}}}:{{shard}}:{{id}}"})
        notes = (of_the_suite("the template of keys"),)
        where = f"keys with the hash tag {{{name}}}"
        return Trial(lambda: type(self)(options), where, type(self)(options).erase_trial, notes)

    async def erase_trial(self, tube: str, keys: Collection[Key]) -> None:
        """Delete the documents of these keys, their tombstones and registers, which a trial has written."""
        await self.open()
        names = {self._name(tube, *key) for key in keys}
        everything = [*names, *map(tombstone_of, names), *{self._register(tube, shard) for shard, _ in keys}]
        everything += [*self._marks(tube), *map(note_of, notes_of_the_suite(tube))]
        for start in range(0, len(everything), _ERASED):
            await self._ask([[b"DEL", name] for name in everything[start : start + _ERASED]])
        await self.close()

    def cannot_scan(self) -> str | None:
        """In the mode `invalidate`, the documents are not this sink's."""
        return 'mode = "invalidate" keeps no documents' if self._options.mode == "invalidate" else None

    cannot_read = cannot_mark = cannot_note = cannot_scan

    async def scan(self, tube: str, shard: int, below_seq: int) -> AsyncIterator[Sequence[Id]]:
        """The ids of a shard's register with a lower seq.

        The server's cursor is good on one server only, so the scan ends when another one answers.
        """
        servers = self._opened()
        register = self._register(tube, shard)
        cursor, run = b"0", b""
        while True:
            commands = [
                [b"INFO", b"server"],
                [b"HSCAN", register, cursor, b"COUNT", b"%d" % _SCAN_COUNT],
            ]
            about, reply = await servers.of(register).ask(commands, self._options.timeout)
            for answer in (about, reply):
                if isinstance(answer, ResponseError):
                    raise SinkUnavailable(f'sink "redis": the scan was refused: {answer}')
            if run not in (b"", _fields(about).get(b"run_id", b"")):
                raise SinkUnavailable('sink "redis": another server answers than the one the scan began at')
            run = _fields(about).get(b"run_id", b"")
            cursor, entries = reply
            found = [
                id_of(member)
                for member, stamp in zip(entries[::2], entries[1::2], strict=True)
                if seq_of(stamp) < below_seq
            ]
            for start in range(0, len(found), PAGE):
                yield found[start : start + PAGE]
            if cursor == b"0":
                return

    async def read_mark(self, tube: str) -> str | None:
        """The value of a key that never expires; of a cluster, that of a key in each part of the slots."""
        held = await self._ask([[b"MGET", name] for name in self._marks(tube)])
        marks = {mark for (mark,) in held}
        # In a cluster, one server of several may have been emptied.
        return marks.pop().decode() if len(marks) == 1 and marks != {None} else None

    async def write_mark(self, tube: str, mark: str) -> None:
        """Set the first key, unless another process has, and then the others to the same."""
        first, *others = self._marks(tube)
        _, (held,) = await self._ask([[b"SET", first, mark.encode(), b"NX"], [b"MGET", first]])
        await self._ask([[b"SET", name, held] for name in others if held is not None])

    async def read_note(self, key: str) -> str | None:
        """The value of a key beside that of the mark; tubes of one database share it."""
        ((held,),) = await self._ask([[b"MGET", note_of(key)]])
        return None if held is None else bytes(held).decode()

    async def write_note(self, key: str, text: str) -> None:
        """Set that key."""
        await self._ask([[b"SET", note_of(key), text.encode()]])

    def _marks(self, tube: str) -> list[bytes]:
        return marks_of(self._tag(tube, 0), tube, cluster=self._options.cluster)

    async def _ask(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to commands about one key each, in order."""
        replies = await self._opened().spread(commands, itemgetter(1), self._ask_server)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, NoPermissionError) and command[0] != b"DEL":  # others may continue
                raise ConfigError(f'sink "redis": grant MGET and SET of pytube.mark:* ({reply})')
            if isinstance(reply, SinkUnavailable):
                raise reply
            if isinstance(reply, ResponseError):
                raise SinkUnavailable(f'sink "redis": {command[0].decode()} was refused: {reply}')
        return replies

    async def _ask_server(self, server: Server, commands: Sequence[Command]) -> list[Any]:
        return await server.ask(commands, self._options.timeout)

    async def read(self, tube: str, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        """The documents, with what registers and tombstones say of their last writes, shard by shard."""
        servers = self._opened()
        shards: dict[int, list[Id]] = {}
        for shard, key in keys:
            shards.setdefault(shard, []).append(key)
        asked = [self._reading(tube, shard, ids) for shard, ids in shards.items()]
        answers = await servers.spread(asked, lambda commands: commands[1][1], self._ask_server_each)
        found: dict[Key, Stored] = {}
        for (shard, ids), answer in zip(shards.items(), answers, strict=True):
            if isinstance(answer, SinkUnavailable):
                raise answer
            for reply in answer:
                if isinstance(reply, ResponseError):
                    raise SinkUnavailable(f'sink "redis": the documents could not be read: {reply}')
            stamps, stones, *documents = answer[-1]
            if self._options.mode != "hash":
                (documents,) = documents
            for key, *held in zip(ids, stamps, stones, documents, strict=True):
                found[shard, key] = _stored(*held)
        return found

    def _reading(self, tube: str, shard: int, ids: Sequence[Id]) -> list[Command]:
        """The commands that read documents of a shard and their stamps, in one step: as of one moment."""
        names = [self._name(tube, shard, key) for key in ids]
        is_hash = self._options.mode == "hash"
        return [
            [b"MULTI"],
            [b"HMGET", self._register(tube, shard), *map(member_of, ids)],
            [b"MGET", *map(tombstone_of, names)],
            *([[b"HGETALL", name] for name in names] if is_hash else [[b"MGET", *names]]),
            [b"EXEC"],
        ]

    async def _ask_server_each(
        self, server: Server, requests: Sequence[Sequence[Command]]
    ) -> list[list[Any]]:
        """The replies to the commands of each request."""
        replies = iter(await self._ask_server(server, [one for request in requests for one in request]))
        return [[next(replies) for _ in request] for request in requests]

    async def as_held(self, bodies: Sequence[bytes]) -> Sequence[bytes | None]:
        """The same; in the mode `hash` an object whose values are texts."""
        return bodies if self._options.mode == "json" else [_as_hash(body) for body in bodies]

    # --- from a batch to calls ------------------------------------------------------------

    def _register(self, tube: str, shard: int) -> bytes:
        """One for all documents of a shard, whatever their ids are; in a cluster their names have its tag."""
        return register_of(self._tag(tube, shard), tube, shard)

    def _tag(self, tube: str, shard: int) -> bytes:
        """The hash tag of a shard's names in a cluster, which comes before any column; none need be known."""
        return hash_tag(self.template.example("0", tube, shard).encode())

    def _name(self, tube: str, shard: int, key: Id) -> bytes:
        return self.template.name(tube, shard, key).encode()

    def _calls(self, batch: Batch, results: dict[int, Result]) -> Iterator[Call]:
        """The batch as calls of the script; documents that can't be written get their result here."""
        open_calls: dict[tuple[int, int, Token], Call] = {}
        for position, document in enumerate(batch):
            name = self._name(batch.tube, document.shard, document.id)
            try:
                self._check_document(name, document.body)
                payload = payload_of(document, self._options.mode)
            except ValueError as error:
                mode = self._options.mode
                results[position] = Reject(f'sink "redis", mode "{mode}": can\'t hold the document: {error}')
                continue
            group = document.shard, document.seq, document.token
            call = open_calls.get(group)
            if call is None:
                register = self._register(batch.tube, document.shard)
                call = open_calls[group] = Call(register, document.seq, document.token)
            call.add(position, name, member_of(document.id), payload)
            if call.is_full:
                yield open_calls.pop(group)
        yield from open_calls.values()

    def _check_document(self, name: bytes, body: bytes | None) -> None:
        """Raise `ValueError` with the reason if the document must not be written."""
        if name.startswith(RESERVED):
            raise ValueError(f"its key begins with {RESERVED.decode()!r}, as the sink's own keys do")
        if body is not None and len(body) > LARGEST:
            raise ValueError(f"it has {len(body)} bytes, and {LARGEST} are possible")

    # --- from calls to results ------------------------------------------------------------

    async def _trip(
        self, servers: Servers, calls: Sequence[Call], batch: Batch, results: dict[int, Result]
    ) -> str:
        """Have the calls done, and note their results; why some were not done, or nothing."""
        trouble = ""
        try:
            replies = await servers.spread(
                calls, attrgetter("register"), partial(self._write, servers, batch)
            )
        except (SinkUnavailable, ConfigError) as error:
            return str(error)
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, SinkUnavailable):
                trouble = str(reply)
            elif isinstance(reply, ResponseError):
                trouble = f'sink "redis": the server refused the write: {reply}'
            else:
                results.update(dict.fromkeys(call.positions, OK))
                results.update(call.refused(reply))
        return trouble

    async def _write(
        self, servers: Servers, batch: Batch, server: Server, calls: Sequence[Call]
    ) -> list[Any]:
        """The reply to each call, all of them confirmed as the options demand."""

        def begin() -> None:
            if servers is not self._servers:
                raise SinkUnavailable('sink "redis" is closed')
            refuse_lapsed('sink "redis"', batch)

        replies = await self._round(server, calls, begin, with_text=False)
        lost = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if lost:
            again = await self._round(server, [calls[at] for at in lost], begin, with_text=True)
            for at, reply in zip(lost, again, strict=True):
                replies[at] = reply
        if any(isinstance(reply, ReadOnlyError) for reply in replies):
            await server.drop_idle()  # the name may lead to the new primary by now
        return replies

    async def _round(
        self, server: Server, calls: Sequence[Call], begin: Callable[[], None], *, with_text: bool
    ) -> list[Any]:
        """One round trip."""
        options = self._options
        seconds = options.tombstone_seconds
        # The first call brings the script; the others find it there.
        commands = [call.command(seconds, with_text=with_text and not at) for at, call in enumerate(calls)]
        wait = self._wait()
        limit = options.timeout + (options.wait_timeout if wait else 0)
        replies = await server.ask([*commands, *wait], limit, begin)
        for demand, reply in zip(wait, replies[len(calls) :], strict=True):
            self._check_confirmed(server, demand, reply)
        return replies[: len(calls)]

    def _wait(self) -> list[list[bytes]]:
        """The command that waits until the writes before it are as safe as the options demand."""
        replicas = b"%d" % self._options.wait_replicas
        milliseconds = b"%d" % (self._options.wait_timeout * 1000)
        if self._options.wait_fsync:
            return [[b"WAITAOF", b"1", replicas, milliseconds]]
        return [[b"WAIT", replicas, milliseconds]] if self._options.wait_replicas else []

    def _check_confirmed(self, server: Server, demand: Sequence[bytes], reply: Any) -> None:
        """Raise `SinkUnavailable` unless the writes are safe.

        They were done, but `SinkTimeout` would have them count against their documents, which are not at
        fault. Sent again, they do no harm here.
        """
        if isinstance(reply, ResponseError):
            raise SinkUnavailable(f'sink "redis": {server.name} refused {demand[0].decode()}: {reply}')
        local, replicas = reply if self._options.wait_fsync else (1, reply)
        if local < 1 or replicas < self._options.wait_replicas:
            kept = "on its own disk" if local else "not on its own disk"
            raise SinkUnavailable(
                f'sink "redis": {server.name} confirmed writes {kept}, and of {replicas} replicas, within '
                f"{self._options.wait_timeout:g} s; wait_replicas is {self._options.wait_replicas}"
            )

    # --- the server and the options -------------------------------------------------------

    def _opened(self) -> Servers:
        if self._servers is None:
            raise SinkUnavailable('sink "redis" is not open')
        return self._servers

    async def _check(self, server: Server) -> None:
        """Compare what the server says of itself with the options.

        Raises:
            ConfigError: documents would be lost, or a command that the options need is missing.
        """
        sections = (b"server", b"memory", b"persistence")
        about: dict[bytes, bytes] = {}
        for reply in await server.ask([[b"INFO", section] for section in sections], self._options.timeout):
            if isinstance(reply, ResponseError):
                self._log.warning(
                    "redis_unchecked",
                    server=server.name,
                    reason=str(reply),
                )
                return
            about |= _fields(reply)
        if about.get(b"redis_mode") == b"cluster" and not self._options.cluster:
            raise ConfigError(f'sink "redis": {server.name} is a member of a cluster; set cluster = true')
        self._check_eviction(server, about)
        self._check_persistence(server, about)

    def _check_eviction(self, server: Server, about: Mapping[bytes, bytes]) -> None:
        policy = about.get(b"maxmemory_policy", b"unknown").decode()
        if policy == "noeviction" or about.get(b"maxmemory") == b"0":
            return
        if policy.startswith("allkeys-") and self._options.mode != "invalidate":
            if not self._options.allow_eviction:
                raise ConfigError(
                    f'sink "redis": {server.name} has maxmemory-policy {policy}, which drops documents; '
                    "set it to noeviction, or allow_eviction = true if readers cope with missing documents"
                )
            lost = "documents and tombstones"
        else:
            lost = "tombstones"
        self._log.warning(
            "redis_may_evict",
            server=server.name,
            reason=f"its maxmemory-policy {policy} may drop {lost}; a late write may then win",
        )

    def _check_persistence(self, server: Server, about: Mapping[bytes, bytes]) -> None:
        if not self._options.wait_fsync:
            if about.get(b"aof_enabled") != b"1":
                reason = "appendonly is off, so a crash loses writes acknowledged since the last snapshot"
                self._log.warning("redis_may_lose", server=server.name, reason=reason)
            return
        if about.get(b"aof_enabled") != b"1":
            raise ConfigError(
                f'sink "redis": option "wait_fsync" needs appendonly yes, and {server.name} has it off'
            )
        version = about.get(b"redis_version", b"").decode()
        if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < (7, 2):
            raise ConfigError(
                f'sink "redis": option "wait_fsync" needs Redis 7.2 or newer, and {server.name} is {version}'
            )


def _stored(stamp: bytes | None, stone: bytes | None, document: Any) -> Stored:
    """One document: a text, or the fields of a hash; with its entry in the register, and its tombstone."""
    token, seq = stamp_of(stamp or stone)
    if isinstance(document, ResponseError):  # another application's key, of another type
        return Stored(b"", token, seq)
    if isinstance(document, list):
        if not document and stamp is None:
            return Stored(None, token, seq)
        # Of an object without fields, Redis keeps no hash; only the register has it.
        fields = {text_of(name): text_of(value) for name, value in _pairs(document)}
        return Stored(orjson.dumps(fields), token, seq)
    return Stored(document, token, seq)


def _as_hash(body: bytes) -> bytes | None:
    """What a hash keeps of a document, as JSON; None when it can't be one."""
    try:
        fields = hash_fields(body)
    except ValueError:
        return None
    return orjson.dumps({text_of(name): text_of(value) for name, value in _pairs(fields)})


def _pairs(items: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Names and values that stand alternately."""
    return zip(items[::2], items[1::2], strict=True)


def _fields(about: bytes) -> dict[bytes, bytes]:
    """The lines of an answer to INFO."""
    pairs = (line.partition(b":") for line in about.splitlines())
    return {name: value for name, separator, value in pairs if separator}
