"""A worker takes up another configuration while it runs: what has changed begins again, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from pytube.config import Config, parse
from pytube.election import Claim
from pytube.errors import ConfigError, PytubeError, SinkUnavailable, UnknownTube, UsageError
from pytube.events import (
    ConfigRefused,
    ConfigTakenUp,
    DocumentRefused,
    Event,
    LeaderAcquired,
    LeaderFenced,
    LeaderRevoked,
)
from pytube.model import OK, Batch, Id, Result
from pytube.worker import Worker
from pytube.worker import reload as reload_module
from pytube.worker.reload import Changes, Reloader
from tests.helpers.capture import let_writers_notify, open_session
from tests.helpers.cli import run, start
from tests.helpers.database import preparing
from tests.helpers.forked import Piped
from tests.helpers.waiting import wait_until, wait_until_async

Conn = psycopg.Connection[tuple[Any, ...]]

PROCESS = """
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
receive_deadline = 1.5
session_timeout = 12.0
installation = "{installation}"
"""
taken: list[tuple[str, Id]] = []
other: list[tuple[str, Id]] = []
free = threading.Event()
"""Whether `hold` lets documents pass."""


def send(batch: Batch) -> Sequence[Result]:
    """Takes everything."""
    taken.extend((batch.tube, document.id) for document in batch)
    return [OK] * len(batch)


def elsewhere(batch: Batch) -> Sequence[Result]:
    """Takes everything, too."""
    other.extend((batch.tube, document.id) for document in batch)
    return [OK] * len(batch)


def slowly(batch: Batch) -> Sequence[Result]:
    """Takes everything, when it may."""
    taken.extend((batch.tube, document.id) for document in batch)
    free.wait()
    return [OK] * len(batch)


def down(_: Batch) -> Sequence[Result]:
    """Takes nothing."""
    raise SinkUnavailable("nobody is there")


def tube(name: str, target: str = "send", **keys: object) -> str:
    """The section of a tube."""
    more = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    return (
        f'[tube.{name}]\n{more}[tube.{name}.sink]\ntype = "callable"\n'
        f'target = "{__name__}:{target}"\nrequest_timeout = 2\n'
    )


@dataclass
class Running:
    """A worker, and what it tells."""

    worker: Worker
    conn: Conn
    head: str
    more: dict[str, Any]
    events: list[Event] = field(default_factory=list)

    def config(self, *sections: str) -> Config:
        """The file with these sections."""
        config = parse(self.head + "".join(sections))
        return config.model_copy(update=self.more)

    async def take_up(self, *sections: str) -> None:
        """As if the file were these now."""
        await self.worker.take_up(self.config(*sections))

    def leaders(self, name: str) -> list[int]:
        """The epochs of a tube's terms."""
        rows = self.conn.execute("SELECT epoch FROM tube_leaders(%s) ORDER BY partition", (name,)).fetchall()
        return [row[0] for row in rows]

    def claims(self, name: str) -> list[Claim]:
        """The claims of a tube, whether or not a term is led under them."""
        leading = [claim for host in self.worker._hosts for claim in host._leading.values()]
        return [claim for claim in leading if claim.tube == name]

    def of(self, kind: type[LeaderAcquired | LeaderRevoked], name: str) -> int:
        """How many terms have begun or ended."""
        return sum(isinstance(event, kind) and event.tube == name for event in self.events)

    async def delivers(self, name: str, key: int, to: list[tuple[str, Id]]) -> None:
        """Touch a row, and wait until it is delivered."""
        self.conn.execute("SELECT public.goods_touch(ARRAY[%s::bigint])", (key,))
        await wait_until_async(lambda: (name, key) in to, what=f"{key} of {name} is delivered")


def prepared(dsn: str) -> None:
    """Three tubes of one table."""
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
        for name in ("a", "b", "c"):
            make(conn, name)


prepare = preparing(prepared, "goods")


@pytest.fixture(autouse=True)
def goods() -> Iterator[None]:
    taken.clear()
    other.clear()
    free.set()
    yield
    free.set()


def make(conn: Conn, name: str) -> None:
    conn.execute("SELECT tube_ensure_exists(%s, 2)", (name,))
    conn.execute("SELECT tube_table_ensure_attached(%s, 'public.goods', 0)", (name,))


@asynccontextmanager
async def running(dsn: str, conn: Conn, *sections: str, **more: Any) -> AsyncIterator[Running]:
    head = PROCESS.format(dsn=dsn, installation=dsn.rpartition("/")[2])
    events: list[Event] = []
    given = more.pop("sinks", None)
    config = parse(head + "".join(sections)).model_copy(update=more)
    worker = Worker(config, on_event=events.append, sinks=given)
    await worker.start()
    try:
        one = Running(worker, conn, head, more, events)
        for name in config.tubes:
            await wait_until_async(lambda: len(worker.leads(name)) == 2, what="it leads")  # noqa: B023
        yield one
    finally:
        await worker.stop()


@pytest.mark.parametrize("election", ["lease", "neli", "neli, shared"])
async def test_only_what_has_changed_begins_again(
    dsn: str, conn: Conn, election: str, request: pytest.FixtureRequest
) -> None:
    more: dict[str, Any] = {}
    if election != "lease":
        head = PROCESS.format(dsn=dsn, installation=dsn.rpartition("/")[2]).replace('"lease"', '"neli"')
        head += f'[kafka]\nbootstrap_servers = "{request.getfixturevalue("kafka_mock")}"\n'
        config = parse(head + ("" if election == "neli" else "shared_partitions = 4\n"))
        more = {"kafka": config.kafka, "worker": config.worker}
    async with running(dsn, conn, tube("a"), tube("b"), **more) as one:
        await one.delivers("a", 1, taken)
        await one.delivers("b", 1, taken)
        before = one.leaders("a")
        (elections,) = [host._elections for host in one.worker._hosts]
        joined = dict(elections._joined)
        await one.take_up(tube("a"), tube("b", "elsewhere"))
        await one.delivers("b", 2, other)
        await one.delivers("a", 2, taken)
        assert ("b", 2) not in taken
        assert one.leaders("a") == before
        assert one.of(LeaderRevoked, "a") == 0
        await wait_until_async(lambda: one.of(LeaderAcquired, "b") == 4, what="its terms began again")
        assert one.of(LeaderRevoked, "b") == 2
        assert joined == dict(elections._joined)
        assert one.events.count(ConfigTakenUp((), ("b",), ())) == 1

        await one.take_up(tube("a"), tube("c"))
        await one.delivers("c", 3, taken)
        await wait_until_async(lambda: not one.claims("b"), what="b is left")
        await one.take_up(tube("b"), tube("c"))
        await one.delivers("b", 4, taken)
        await wait_until_async(lambda: not one.claims("a"), what="a is left")
        assert one.of(LeaderRevoked, "c") == 0
        assert set(one.worker._hosts[0].queues) == {"b", "c"}


async def test_another_worker_gets_what_is_removed(dsn: str, conn: Conn) -> None:
    async with running(dsn, conn, tube("a"), tube("b")) as one:
        await one.delivers("a", 1, taken)
        await one.take_up(tube("b"))
        async with running(dsn, conn, tube("a", "elsewhere")) as two:
            await two.delivers("a", 2, other)
            acquired = [event for event in two.events if isinstance(event, LeaderAcquired)]
            assert max(event.waited for event in acquired) < 1, "the terms before were released"


async def test_new_tubes_are_heard_of(dsn: str, conn: Conn) -> None:
    let_writers_notify(conn)
    async with running(dsn, conn, tube("a")) as one:
        await one.delivers("a", 1, taken)
        await one.take_up(tube("a"), tube("b"))
        await wait_until_async(lambda: len(one.worker.leads("b")) == 2, what="it leads")
        (host,) = one.worker._hosts

        def sleeps() -> bool:
            terms = host.database.terms
            return host.database.notifications_work and all(terms["b", number].sleeps for number in (0, 1))

        await wait_until_async(sleeps, what="b waits for notifications")
        assert set(host.database._tubes) == {"a", "b"}
        await one.delivers("b", 2, taken)


REFUSED: dict[str, tuple[Callable[[str], str], type[PytubeError], str]] = {
    "a tube that is not there": (
        lambda _: tube("a", "elsewhere") + tube("nope"),
        UnknownTube,
        "no tube 'nope'",
    ),
    "an unreadable query": (
        lambda _: (
            tube("a", "elsewhere")
            + tube("b")
            + '[tube.b.enrich]\nmode = "query"\n'
            + 'query = "SELECT id, body FROM public.goods WHERE id = ANY(%(ids)s)"\n'
        ),
        ConfigError,
        "body",
    ),
    "a sink that can't be built": (lambda _: tube("a", "elsewhere") + tube("b", "nope"), ConfigError, "nope"),
    "a sink that can't be opened": (
        lambda dsn: (
            tube("a", "elsewhere")
            + f'[tube.b.sink]\ntype = "postgres"\ndsn = "{dsn}"\ntable = "public.nowhere"\n'
        ),
        PytubeError,
        "nowhere",
    ),
    "nothing is left": (lambda _: "", ConfigError, "nothing is configured"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_refused_changes_nothing(dsn: str, conn: Conn, what: str) -> None:
    make_sections, kind, reason = REFUSED[what]
    async with running(dsn, conn, tube("a"), tube("b")) as one:
        await one.delivers("a", 1, taken)
        await one.delivers("b", 1, taken)
        before = one.leaders("a") + one.leaders("b")
        told = len(one.events)
        with pytest.raises(kind, match=reason):
            await one.take_up(make_sections(dsn))
        await one.delivers("a", 2, taken)
        await one.delivers("b", 2, taken)
        assert one.leaders("a") + one.leaders("b") == before
        assert not [event for event in one.events[told:] if isinstance(event, LeaderRevoked | ConfigTakenUp)]


async def test_keys_of_the_process_are_named_and_nothing_is_taken_up(dsn: str, conn: Conn) -> None:
    async with running(dsn, conn, tube("a")) as one:
        config = one.config(tube("a", "elsewhere"))
        changed = config.model_copy(
            update={
                "worker": config.worker.model_copy(update={"meter_interval": 1.0}),
                "postgres": config.postgres.model_copy(update={"pool_size": 3}),
                "kafka": parse('[postgres]\ndsn = "x"\n[kafka]\nbootstrap_servers = "x:1"\n').kafka,
            }
        )
        with pytest.raises(ConfigError) as error:
            await one.worker.take_up(changed)
        assert "postgres.pool_size, kafka, worker.meter_interval can't be changed" in str(error.value)
        await one.delivers("a", 1, taken)


@pytest.mark.parametrize("state", ["sink down", "paused", "sending"])
async def test_a_term_that_does_not_deliver(dsn: str, conn: Conn, state: str) -> None:
    target = {"sink down": "down", "paused": "send", "sending": "slowly"}[state]
    free.clear()
    async with running(dsn, conn, tube("a", target, mark_limit=10)) as one:
        if state == "paused":
            conn.execute("SELECT tube_pause('a')")
            await wait_until_async(lambda: len(one.worker._hosts[0].resting()) == 2, what="it is paused")
        conn.execute("SELECT public.goods_touch(ARRAY[1::bigint])")
        if state == "sending":
            await wait_until_async(lambda: taken, what="it is being sent")
        if state == "sink down":
            sink_down = "SELECT true FROM tube_leaders('a') WHERE sink_down IS NOT NULL"
            await wait_until_async(lambda: conn.execute(sink_down).fetchone(), what="its sink is down")
        await one.take_up(tube("a", "elsewhere"))
        if state == "paused":
            await wait_until_async(
                lambda: len(one.worker._hosts[0].resting()) == 2, what="it is paused again"
            )
            assert not other
            conn.execute("SELECT tube_resume('a')")
        await wait_until_async(lambda: ("a", 1) in other, what="it is delivered by the new sink")
        free.set()
        assert one.of(LeaderRevoked, "a") == 2, "the terms have ended in order"
        assert not [event for event in one.events if isinstance(event, LeaderFenced)]


async def test_two_at_once_and_one_during_the_stop(dsn: str, conn: Conn) -> None:
    async with running(dsn, conn, tube("a"), tube("b")) as one:
        await asyncio.gather(
            one.take_up(tube("a", "elsewhere"), tube("b")), one.take_up(tube("a"), tube("b", "elsewhere"))
        )
        await one.delivers("a", 1, taken)
        await one.delivers("b", 1, other)
        late = asyncio.create_task(one.take_up(tube("a", "elsewhere"), tube("b")))
        wait = one.worker._hosts[0].hold
        held = asyncio.Event()

        async def hold(names: Sequence[str]) -> None:
            held.set()
            await wait(names)
            await asyncio.Event().wait()

        one.worker._hosts[0].hold = hold  # type: ignore[method-assign, assignment]
        await held.wait()
        await one.worker.stop()
        with pytest.raises(UsageError, match="stopped"):
            await late
        with pytest.raises(UsageError, match="stopped"):
            await one.take_up(tube("a"))
        assert one.leaders("a") == [], "its terms were released"


async def test_counters_go_on(dsn: str, conn: Conn) -> None:
    async with running(dsn, conn, tube("a")) as one:
        await one.delivers("a", 1, taken)
        await one.take_up(tube("a", "elsewhere"))
        await one.delivers("a", 2, other)
        (host,) = one.worker._hosts
        counters = host.tubes()["a"].metrics.partitions.values()
        await wait_until_async(
            lambda: sum(sum(one.documents) for one in counters) == 2, what="both are counted"
        )


# --- instances of sinks --------------------------------------------------------------------------


class Memory:
    """A sink that keeps what it is given, and notes what is done with it."""

    compares = False

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ids: list[Id] = []

    async def open(self) -> None:
        """Begin."""
        self.calls.append("open")

    async def send(self, batch: Batch) -> Sequence[Result]:
        """Take everything."""
        self.ids.extend(document.id for document in batch)
        return [OK] * len(batch)

    async def abandon(self, _: Batch) -> None:
        """Nothing is under way."""

    async def close(self) -> None:
        """End."""
        self.calls.append("close")


class Made(Memory):
    """One that the file names."""

    last: Made

    @classmethod
    def from_options(cls, options: dict[str, object]) -> Made:
        """Make it."""
        cls.last = cls()
        assert options == {"size": 3}
        return cls.last


async def test_an_instance_is_the_sink_and_is_opened_again(dsn: str, conn: Conn) -> None:
    memory = Memory()
    section = '[tube.a.sink]\ntype = "mem"\n'
    async with running(dsn, conn, section, sinks={"mem": memory}) as one:
        conn.execute("SELECT public.goods_touch(ARRAY[1::bigint])")
        await wait_until_async(lambda: memory.ids == [1], what="it has the document")
        assert memory.calls == ["open"]
        await one.take_up("[tube.a]\nattempts = 3\n", section)
        assert memory.calls == ["open"], "its own section is as it was"
        await one.take_up("[tube.a]\nattempts = 3\n", section + "sends = 2\n")
        conn.execute("SELECT public.goods_touch(ARRAY[2::bigint])")
        await wait_until_async(lambda: memory.ids == [1, 2], what="it has both")
        assert memory.calls == ["open", "close", "open"]
        with pytest.raises(ConfigError, match="would do nothing"):
            await one.take_up(section + "size = 3\n")
        with pytest.raises(ConfigError, match="'a' and 'b'"):
            await one.take_up(section, '[tube.b.sink]\ntype = "mem"\n')
    assert memory.calls == ["open", "close", "open", "close"]


async def test_a_class_that_the_file_names(dsn: str, conn: Conn) -> None:
    section = f'[tube.a.sink]\ntype = "{__name__}:Made"\nsize = 3\n'
    async with running(dsn, conn, section):
        conn.execute("SELECT public.goods_touch(ARRAY[1::bigint])")
        await wait_until_async(lambda: Made.last.ids == [1], what="it has the document")
    with pytest.raises(ConfigError, match="from_options"):
        Worker(parse(PROCESS.format(dsn=dsn, installation="x") + section.replace("Made", "Memory")))


# --- the command, and the file -------------------------------------------------------------------


SHOP = """
CREATE SCHEMA shop;
CREATE TABLE shop.products (id bigint PRIMARY KEY, sku text NOT NULL);
CREATE TABLE shop.orders (id bigint PRIMARY KEY, status text NOT NULL);
CREATE TABLE shop.items (id bigint PRIMARY KEY, order_id bigint NOT NULL REFERENCES shop.orders,
    product_id bigint NOT NULL REFERENCES shop.products, quantity int NOT NULL);
CREATE INDEX ON shop.items (order_id);
CREATE INDEX ON shop.items (product_id);
INSERT INTO shop.products VALUES (1, 'lamp');
INSERT INTO shop.orders VALUES (7, 'new');
INSERT INTO shop.items VALUES (1, 7, 1, 2);
"""
DECLARED = """
[tube.orders.sink]
type = "jsonl"
path = "orders.jsonl"
[document.orders]
table = "shop.orders"
fields = ["id", "status"]
[document.orders.items]
many = "shop.items"
fields = ["quantity"]
[document.orders.items.product]
one = "shop.products"
fields = ["sku"]
[tube.a.sink]
type = "jsonl"
path = "a.jsonl"
"""


@dataclass
class Command:
    """`pytube worker` over a file."""

    process: Piped
    file: Path
    conn: Conn
    log: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    def begin(self) -> None:
        """Read what the process says."""
        self.readers.append(threading.Thread(target=self._read, args=[self.process], daemon=True))
        self.readers[-1].start()

    def _read(self, process: Piped) -> None:
        assert process.stderr is not None
        self.log.extend(process.stderr)

    def again(self, *options: str) -> None:
        """Another process, after the first one has ended."""
        self.process = start("--log-format", "json", "worker", *options, config=self.file)
        self.begin()

    def written(self, name: str) -> list[Any]:
        """What the sink of a tube has."""
        path = self.file.parent / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def replace(self, before: str, after: str) -> None:
        """Edit the file, as editors do."""
        text = self.file.read_text()
        assert before in text
        new = self.file.with_suffix(".new")
        new.write_text(text.replace(before, after))
        new.rename(self.file)

    def said(self, *words: str) -> list[dict[str, Any]]:
        """The lines of the log that have these words."""
        return [json.loads(line) for line in self.log if all(word in line for word in words)]

    def wait_for(self, *words: str) -> None:
        """Wait for such a line."""
        wait_until(lambda: self.said(*words), what=lambda: f"{words}:\n{''.join(self.log)}")

    def epochs(self, name: str) -> list[int]:
        """Of the terms of a tube."""
        return [row[0] for row in self.conn.execute("SELECT epoch FROM tube_leaders(%s)", (name,))]


@pytest.fixture
def command(dsn: str, conn: Conn, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Command]:
    conn.execute(SHOP.encode())
    file = tmp_path / "pytube.toml"
    head = PROCESS.format(dsn=dsn, installation=dsn.rpartition("/")[2])
    file.write_text(
        head
        + DECLARED.replace('"orders.jsonl"', f'"{tmp_path}/orders.jsonl"').replace(
            '"a.jsonl"', f'"{tmp_path}/a.jsonl"'
        )
    )
    run("apply", "--yes", "--backfill", folder=tmp_path)
    process = start("--log-format", "json", "worker", *request.param, config=file)
    one = Command(process, file, conn)
    one.begin()
    try:
        wait_until(lambda: one.written("orders"), what=lambda: f"the order:\n{''.join(one.log)}")
        wait_until(lambda: len(one.epochs("a")) == 2, what="a is led")
        yield one
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(timeout=60) == 0
        assert not one.said("Traceback")
    finally:
        one.process.kill()
        one.process.wait()
        for reader in one.readers:
            reader.join(timeout=10)


@pytest.mark.parametrize("command", [("--watch",), ()], indirect=True, ids=["watch", "hangup"])
def test_a_renamed_column(command: Command, request: pytest.FixtureRequest) -> None:
    """Its document stands, and goes on by itself when the file was edited and applied, without a restart."""
    watches = "watch" in request.node.name
    before = command.epochs("a")
    command.conn.execute("ALTER TABLE shop.items RENAME COLUMN quantity TO amount")
    command.conn.execute("UPDATE shop.items SET amount = 5")
    command.wait_for("source_down", '"orders"', "quantity")

    command.replace('fields = ["quantity"]', 'fields = ["amount AS quantity"]')
    if not watches:
        os.kill(command.process.pid, signal.SIGHUP)
    command.wait_for("document_refused", "run `pytube apply`")
    assert len(command.said("config_taken_up")) == 0
    run("apply", "--yes", folder=command.file.parent)
    if not watches:
        os.kill(command.process.pid, signal.SIGHUP)
    wanted = {"id": 7, "status": "new", "items": [{"quantity": 5, "product": {"sku": "lamp"}}]}
    wait_until(
        lambda: wanted in [line["doc"] for line in command.written("orders")],
        what=lambda: f"the new order:\n{command.written('orders')}\n{''.join(command.log)}",
    )
    command.conn.execute("UPDATE shop.products SET sku = 'desk lamp'")
    wait_until(lambda: "desk lamp" in str(command.written("orders")), what="a relation is followed")
    assert command.epochs("a") == before
    assert [one["changed"] for one in command.said("config_taken_up")] == [["orders", "orders_relations"]]


@pytest.mark.parametrize("command", [("--watch",)], indirect=True, ids=["watch"])
def test_companions_come_and_go(command: Command) -> None:
    command.replace(
        """[document.orders.items.product]
one = "shop.products"
fields = ["sku"]
""",
        "",
    )
    run("apply", "--yes", folder=command.file.parent)
    command.wait_for("config_taken_up", '"orders"')
    command.replace(
        "[document.orders.items]",
        """[document.orders.items.goods]
one = "shop.products"
fields = ["sku"]
[document.orders.items]""",
    )
    run("apply", "--yes", folder=command.file.parent)
    wait_until(lambda: len(command.said("config_taken_up")) >= 2, what="it is taken up")
    command.conn.execute("UPDATE shop.products SET sku = 'desk lamp'")
    wait_until(lambda: '"desk lamp"' in json.dumps(command.written("orders")), what="a relation is followed")


COURIERS = """
[tube.couriers.sink]
type = "jsonl"
path = "{folder}/couriers.jsonl"
[document.couriers]
table = "shop.couriers"
fields = ["id", "name"]
"""


@pytest.mark.parametrize("command", [("--watch",)], indirect=True, ids=["watch"])
def test_one_bad_document_keeps_nothing_else_from_being_taken_up(command: Command) -> None:
    """What was served before goes on as it was; what is new begins once it is mended."""
    conn, folder = command.conn, command.file.parent
    conn.execute("CREATE TABLE shop.couriers (id bigint PRIMARY KEY, name text)")
    conn.execute("INSERT INTO shop.couriers VALUES (1, 'by bike')")
    more = (COURIERS + '[tube.b.sink]\ntype = "jsonl"\npath = "{folder}/b.jsonl"\n').format(folder=folder)
    run("tube", "create", "b", folder=folder)
    command.replace('fields = ["quantity"]', 'fields = ["quantiy"]')
    command.replace("[tube.a.sink]", more + "[tube.a.sink]")
    command.wait_for("document_refused", '"orders"', "quantiy")
    command.wait_for("document_refused", '"couriers"', "run `pytube apply`")
    command.wait_for("config_taken_up", '"b"')
    conn.execute("UPDATE shop.products SET sku = 'desk lamp'")
    wait_until(lambda: "desk lamp" in str(command.written("orders")), what="orders go on as they were")
    run("apply", "couriers", "--yes", "--backfill", folder=folder)
    wait_until(lambda: "by bike" in str(command.written("couriers")), what="couriers are served")
    command.replace('fields = ["quantiy"]', 'fields = ["quantity AS amount"]')
    run("apply", "--yes", "--backfill", folder=folder)
    wait_until(lambda: '"amount"' in json.dumps(command.written("orders")), what="orders are mended")
    assert not command.said("config_refused")


@pytest.mark.parametrize(
    "command", [("--watch", "--tube", "orders", "--tube", "a")], indirect=True, ids=["chosen"]
)
def test_a_chosen_document_that_was_refused_at_the_start(command: Command) -> None:
    command.process.send_signal(signal.SIGTERM)
    assert command.process.wait(timeout=60) == 0
    command.replace('fields = ["quantity"]', 'fields = ["quantity", "position"]')
    command.again("--watch", "--tube", "orders", "--tube", "a")
    command.wait_for("document_refused", '"orders"', "position")
    command.conn.execute("ALTER TABLE shop.items ADD position int")
    run("apply", "--yes", "--backfill", folder=command.file.parent)
    wait_until(lambda: '"position"' in json.dumps(command.written("orders")), what="it is served")
    assert len(command.said("document_refused", '"orders"', "position")) == 1


@pytest.mark.parametrize("command", [()], indirect=True, ids=["hangup"])
def test_a_hangup_with_nothing_new_and_with_a_faulty_file(command: Command) -> None:
    os.kill(command.process.pid, signal.SIGHUP)
    command.wait_for("config_unchanged")
    command.replace("[worker]", "[worker]\nmeter_interval = 3")
    os.kill(command.process.pid, signal.SIGHUP)
    command.wait_for("config_refused", "worker.meter_interval can't be changed")
    command.replace("[worker]", "[worker")
    os.kill(command.process.pid, signal.SIGHUP)
    command.wait_for("config_refused", "is not TOML")
    assert len(command.said("config_refused")) == 2


# --- when the file is tried ----------------------------------------------------------------------


class Trial:
    """A worker that takes up nothing but what it is told to."""

    def __init__(self) -> None:
        self.refused = ""
        self.stands = False
        self.tried = 0
        self.left_out: list[str] = []
        self.waiting: dict[str, tuple[str, ...]] = {}
        self.told: dict[str, str] = {}

    async def take_up(self, _config: Config, refused: Collection[str]) -> Any:
        """Count."""
        self.tried += 1
        self.left_out = list(refused)
        if self.refused:
            raise ConfigError(self.refused)
        return Changes((), (), (), self.waiting)

    def note_refused(self, reasons: Mapping[str, str]) -> None:
        """Keep it."""
        self.told = dict(reasons)

    def refuses(self) -> bool:
        """Whether anything is refused."""
        return bool(self.told)

    def unserved(self, _config: Config, _refused: Collection[str]) -> list[str]:
        """As if one tube were new."""
        return ["new"]

    def documents_stand(self) -> bool:
        """As told."""
        return self.stands


async def test_a_watched_file_is_tried_when_it_has_settled_and_again_while_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload_module, "_LOOK_INTERVAL", 0.01)
    monkeypatch.setattr(reload_module, "_LONGEST_PAUSE", 0.03)
    trial, events, file = Trial(), list[Event](), tmp_path / "real"
    file.write_text("one")
    link = tmp_path / "link"
    link.symlink_to(file)
    config, refused = parse('[postgres]\ndsn = "x"\n'), dict[str, PytubeError]()
    reloader = Reloader(cast("Worker", trial), lambda: (config, refused), events.append, link)
    looks = 0
    fingerprint = reloader._fingerprint

    def counted() -> str:
        nonlocal looks
        looks += 1
        return fingerprint()

    reloader._fingerprint = counted  # type: ignore[method-assign]
    running = asyncio.create_task(reloader.run())
    try:
        await wait_until_async(lambda: trial.tried == 1, what="what was there at the start is taken up")
        looks = 0
        await wait_until_async(lambda: looks > 10, what="it is looked at")
        assert trial.tried == 1, "it has not changed"
        other_file = tmp_path / "other"
        other_file.write_text("two")
        trial.refused = "no"
        link.unlink()
        looks = 0
        await wait_until_async(lambda: looks > 3, what="a file that is gone is waited for")
        assert trial.tried == 1
        link.symlink_to(other_file)
        await wait_until_async(lambda: trial.tried > 4, what="it is tried again and again")
        assert events == [ConfigRefused("no")], "which is told once"
        trial.refused = ""
        tried = trial.tried
        await wait_until_async(lambda: trial.tried > tried, what="it is taken up")
        tried, looks = trial.tried, 0
        await wait_until_async(lambda: looks > 10, what="it is looked at")
        assert trial.tried == tried
        trial.stands = True
        await wait_until_async(lambda: trial.tried > tried + 1, what="a document that stands is tried again")
        trial.waiting = {"us": ("new",)}
        await wait_until_async(lambda: bool(trial.told), what="something waits for a host")
        trial.stands = False
        tried = trial.tried
        await wait_until_async(lambda: trial.tried > tried + 1, what="that is tried again, too")
        trial.waiting = {}
        await wait_until_async(lambda: not trial.told, what="it is there")
        refused["orders"] = ConfigError("not yet")
        other_file.write_text("three")
        await wait_until_async(lambda: trial.left_out == ["orders"], what="the rest is taken up")
        tried = trial.tried
        await wait_until_async(lambda: trial.tried > tried + 2, what="a document that was refused is, too")
        assert events == [ConfigRefused("no"), DocumentRefused("orders", "not yet")], "which is told once"
        refused.clear()
        await wait_until_async(lambda: trial.left_out == [], what="it is taken up")
        tried, looks = trial.tried, 0
        await wait_until_async(lambda: looks > 10, what="it is looked at")
        assert trial.tried == tried
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_file_that_is_not_watched_is_tried_again_while_something_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what was read of it last: what has changed in it since then waits for a signal."""
    monkeypatch.setattr(reload_module, "_AGAIN", 0.01)
    trial, events, read = Trial(), list[Event](), 0
    config, refused = parse('[postgres]\ndsn = "x"\n'), dict[str, PytubeError]()
    refused["orders"] = ConfigError("not yet")
    trial.note_refused({"orders": "not yet"})

    def load() -> tuple[Config, dict[str, PytubeError]]:
        nonlocal read
        read += 1
        return config, refused

    told = {"orders": "not yet"}
    again = lambda: (config, refused)  # noqa: E731
    reloader = Reloader(cast("Worker", trial), load, events.append, None, told, again)
    running = asyncio.create_task(reloader.run())
    try:
        await wait_until_async(lambda: trial.tried > 2, what="it is tried again and again")
        trial.refused = "permission denied"
        await wait_until_async(lambda: trial.told.get("new") == "permission denied", what="that is told")
        assert trial.told == {"orders": "not yet", "new": "permission denied"}
        trial.refused = ""
        refused.clear()
        trial.waiting = {"us": ("new",)}
        why = {"new": "host us is down, and takes up the changed file when it is back"}
        await wait_until_async(lambda: trial.told == why, what="that it waits for a host is told")
        tried = trial.tried
        await wait_until_async(lambda: trial.tried > tried + 1, what="it is tried again, too")
        trial.waiting = {}
        await wait_until_async(lambda: not trial.told, what="nothing is refused any more")
        tried = trial.tried
        reloader.ask()
        await wait_until_async(lambda: read == 1, what="a signal has it read")
        await wait_until_async(lambda: trial.tried == tried + 1, what="and taken up")
        assert events == [ConfigRefused("permission denied")], "what was told at the start is not again"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
