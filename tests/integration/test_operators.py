"""Operators beside a worker: poison, pauses, steps, and what the commands do and refuse."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from click.testing import CliRunner

from pytube import admin
from pytube.admin import Parking, Pods
from pytube.cli import context
from pytube.cli.program import cli
from pytube.errors import NotPaused, PodsInFlight, SinkUnavailable, StepBusy, UnknownTube, UsageError
from pytube.events import PartitionPaused, PartitionResumed, SinkDown, TubeStopped
from pytube.model import OK, TOUCHED_AT_ONCE, Batch, Reject, Result
from tests.helpers.capture import open_session
from tests.helpers.cli import run, run_json, start
from tests.helpers.database import preparing
from tests.helpers.roles import as_role, roles
from tests.helpers.terms import Claim, Conn, acquire, scalar
from tests.helpers.waiting import wait_until, wait_until_async
from tests.integration.test_worker_faults import running

T = TypeVar("T")


@dataclass
class FakeStore:
    """The sink of these tests."""

    sent: list[tuple[int, bytes | None]] = field(default_factory=list)
    poison: set[int] = field(default_factory=set)
    """Ids that it rejects."""
    fails: set[int] = field(default_factory=set)
    """Ids on which it raises."""
    down: bool = False

    @property
    def ids(self) -> list[int]:
        return [key for key, _ in self.sent]


STORE = FakeStore()


def send(batch: Batch) -> Sequence[Result]:
    if STORE.down:
        raise SinkUnavailable("nobody at home")
    if any(one.id in STORE.fails for one in batch):
        raise ValueError("it can't be taken")
    results: list[Result] = []
    for one in batch:
        bad = one.id in STORE.poison
        results.append(Reject("no such field: hunter2") if bad else OK)
        if not bad:
            STORE.sent.append((int(one.id), one.body))
    return results


@pytest.fixture(autouse=True)
def store() -> FakeStore:
    STORE.__init__()  # type: ignore[misc] # as new for each test
    return STORE


def prepared(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, n int)")
        conn.execute("SELECT tube_ensure_exists('t')")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0)")


prepare = preparing(prepared, "configure")


@pytest.fixture
def configure(dsn: str, tmp_path: Path) -> Callable[..., Path]:
    """A tube with a table of one shard, and the file for its worker."""

    def write(more: str = "") -> Path:
        path = tmp_path / "pytube.toml"
        path.write_text(f"""
            [postgres]
            dsn = "{dsn}"
            [worker]
            receive_deadline = 1
            session_timeout = 2
            [tube.t]
            {more}
            [tube.t.sink]
            type = "callable"
            target = "{__name__}:send"
            request_timeout = 1
        """)
        return path

    return write


@pytest.fixture
def config(configure: Callable[..., Path]) -> Path:
    return configure()


def insert(conn: Conn, *ids: int) -> None:
    for key in ids:
        conn.execute("INSERT INTO public.goods VALUES (%s, 1)", (key,))


def is_empty(conn: Conn) -> bool:
    return bool(scalar(conn, "SELECT count(*) = 0 FROM tube.t"))


async def beside(work: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """What an operator does, beside the worker of this event loop."""
    return await asyncio.to_thread(work, *arguments, **options)


async def paused(conn: Conn) -> None:
    admin.pause(conn, "t")
    assert await beside(admin.wait_until_halted, conn, "t") == []


# --- poison ---


async def test_failures_outlive_the_worker_and_a_document_is_parked_after_all_of_them(
    conn: Conn, configure: Callable[..., Path], store: FakeStore
) -> None:
    store.fails = {7}
    insert(conn, 7)
    async with running(configure("attempts = 1000")):  # as many as there may be until it is paused
        await wait_until_async(lambda: scalar(conn, "SELECT count(*) FROM tube_attempt"), what="it fails")
        await paused(conn)
    attempts = scalar(conn, "SELECT attempts FROM tube_attempt WHERE id = '7'")
    first_at = scalar(conn, "SELECT first_at FROM tube_attempt WHERE id = '7'")
    admin.resume(conn, "t")
    async with running(configure(f"attempts = {attempts + 2}")):
        await wait_until_async(lambda: scalar(conn, "SELECT count(*) FROM tube_parked"), what="it is parked")
        (row,) = admin.list_parked(conn, Parking("t"))
        assert (row.id, row.attempts, row.first_at) == ("7", attempts + 2, first_at)
        assert scalar(conn, "SELECT count(*) FROM tube_attempt") == 0
        store.fails = set()
        insert(conn, 8)
        conn.execute("UPDATE goods SET n = 2 WHERE id = 7")  # a touch tries it again
        await wait_until_async(lambda: not admin.list_parked(conn, Parking("t")), what="it is delivered")


async def test_a_delivery_forgets_the_failures_and_nothing_is_written_while_all_goes_well(
    conn: Conn, config: Path, store: FakeStore
) -> None:
    store.fails = {7}
    insert(conn, 7)
    async with running(config):
        await wait_until_async(lambda: scalar(conn, "SELECT count(*) FROM tube_attempt"), what="it fails")
        store.fails = set()
        await wait_until_async(lambda: is_empty(conn), what="it is delivered")
        assert scalar(conn, "SELECT count(*) FROM tube_attempt") == 0
    writes = "SELECT sum(n_tup_ins) FROM pg_stat_user_tables WHERE relname IN ('tube_paused', 'tube_step')"
    assert scalar(conn, writes) == 0


async def test_a_tube_stops_at_its_first_poison_until_it_is_acknowledged_and_resumed(
    conn: Conn, configure: Callable[..., Path], store: FakeStore, dsn: str
) -> None:
    config = configure('on_poison = "stop"')
    store.poison = {7}
    insert(conn, 7)
    async with running(config) as run_:
        await wait_until_async(lambda: run_.told(TubeStopped), what="it stops")
        await beside(admin.wait_until_halted, conn, "t")
        insert(conn, 8)
        (status,) = await beside(run_json, "status", dsn=dsn)
        assert status["state"] == "stopped"
        assert "key 0/7 can't be delivered: no such field" in status["paused"]
        assert scalar(conn, "SELECT count(*) FROM tube_parked") == 0
        text = await beside(lambda: run("status", "--prometheus", dsn=dsn).stdout)
        assert 'pytube_fleet_partition_stopped{partition="0",tube="t"} 1.0' in text
        assert 'pytube_fleet_partition_led{partition="0",tube="t"} 1.0' in text
        admin.resume(conn, "t")
        await wait_until_async(lambda: run_.told(TubeStopped) == 2, what="it stops again")
        await beside(admin.wait_until_halted, conn, "t")
        assert store.sent == [] or store.ids == [8]
        assert admin.ack_pods(conn, Pods("t", key="7")) == 1
        admin.resume(conn, "t")
        await wait_until_async(lambda: is_empty(conn), what="it goes on")
    assert 7 not in store.ids
    assert 8 in store.ids
    assert "hunter2" not in str(admin.audit(conn))


async def test_too_many_parked_keys_stop_the_tube_and_the_others_stay_in_it(
    conn: Conn, configure: Callable[..., Path], store: FakeStore
) -> None:
    config = configure("park_limit = 2\n park_documents = true")
    async with running(config) as run_:
        store.poison = {1, 2, 3}
        for key in (1, 2):
            insert(conn, key)
            await wait_until_async(lambda: is_empty(conn), what="it is parked")
        insert(conn, 3)
        await wait_until_async(lambda: run_.told(TubeStopped), what="it stops")
        await beside(admin.wait_until_halted, conn, "t")
        rows = admin.list_parked(conn, Parking("t"))
        assert {row.id for row in rows} == {"1", "2"}
        assert admin.parked_document(conn, rows[0].park_id) == b'{"id":2,"n":1}'
        assert [pod.keys for pod in admin.list_pods(conn, Pods("t"))] == [["3"]]
        store.poison = set()
        assert admin.retry_parked(conn, Parking("t")) == 2
        admin.resume(conn, "t")
        await wait_until_async(lambda: is_empty(conn), what="all is delivered")
    assert sorted(store.ids) == [1, 2, 3]
    assert admin.list_parked(conn, Parking("t")) == []


async def test_by_choice_only_an_operator_tries_a_parked_key_again(
    conn: Conn, configure: Callable[..., Path], store: FakeStore
) -> None:
    async with running(configure("retry_on_touch = false")):
        store.poison = {7}
        insert(conn, 7)
        await wait_until_async(lambda: is_empty(conn), what="it is parked")
        store.poison = set()
        conn.execute("UPDATE goods SET n = 2")
        insert(conn, 8)
        await wait_until_async(lambda: is_empty(conn), what="the touches are done")
        assert store.ids == [8]
        assert len(admin.list_parked(conn, Parking("t"))) == 1
        assert admin.retry_parked(conn, Parking("t", key="7")) == 1
        await wait_until_async(lambda: is_empty(conn), what="it is delivered")
    assert store.ids == [8, 7]
    assert admin.list_parked(conn, Parking("t")) == []


# --- pauses ---


async def test_a_paused_partition_is_led_and_nothing_is_marked_or_sent(
    conn: Conn, config: Path, store: FakeStore, dsn: str
) -> None:
    async with running(config) as run_:
        await wait_until_async(lambda: run_.worker.leads("t"), what="it leads")
        await paused(conn)
        assert run_.told(PartitionPaused) == 1
        insert(conn, 1)
        (status,) = await beside(run_json, "status", dsn=dsn)
        assert (status["state"], status["paused_kind"], status["paused_for"]) == ("paused", "operator", None)
        assert run_.worker.leads("t") == {0}
        epoch = scalar(conn, "SELECT epoch FROM tube_leaders('t')")
        assert admin.list_pods(conn, Pods("t"))[0].state == "waiting"
        assert scalar(conn, "SELECT count(*) FROM tube_sleeper") == 0, "writers need not notify"
        assert admin.resume(conn, "t") == 1
        await wait_until_async(lambda: is_empty(conn), what="it is delivered")
        assert run_.told(PartitionResumed)
        assert scalar(conn, "SELECT epoch FROM tube_leaders('t')") == epoch, "it is the same term"
    assert store.ids == [1]


def closed_sink(config: Path) -> Path:
    """The same with a sink that nobody can open."""
    text = config.read_text().replace('"callable"', '"redis"')
    config.write_text(text.replace("target =", 'url = "redis://127.0.0.1:1" #'))
    return config


async def test_a_partition_whose_sink_can_t_be_opened_comes_to_rest_and_steps_say_why(
    conn: Conn, config: Path
) -> None:
    async with running(closed_sink(config)) as run_:
        await wait_until_async(lambda: run_.told(SinkDown) == 1, what="it leads, and waits for the sink")
        insert(conn, 1)
        await paused(conn)
        (pod,) = admin.list_pods(conn, Pods("t"))
        came = await beside(admin.step, conn, "t", pod.seq, 0, "1")
        assert came.outcome == "unsent"
        assert "the sink is not open" in str(came.reason)
        assert admin.list_pods(conn, Pods("t"))[0].state == "waiting"


async def test_a_pause_ends_by_itself(conn: Conn, config: Path) -> None:
    async with running(config):
        admin.pause(conn, "t", lasts=timedelta(seconds=1))
        insert(conn, 1)
        await wait_until_async(lambda: is_empty(conn), what="it is delivered")


def test_the_successor_of_a_worker_that_is_killed_while_paused_stays_paused(conn: Conn, config: Path) -> None:
    admin.pause(conn, "t")
    insert(conn, 1)
    leader = "SELECT leader_id FROM tube_leaders('t')"
    for _ in range(2):
        before = conn.execute(leader).fetchone()
        process = start("worker", config=config)
        try:
            led_anew = lambda before=before: conn.execute(leader).fetchone() not in (None, before)  # noqa: E731
            wait_until(led_anew, what="it leads")
            assert admin.wait_until_halted(conn, "t") == []
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert [pod.state for pod in admin.list_pods(conn, Pods("t"))] == ["waiting"]
        assert admin.pauses(conn, "t")[0].halted_since is not None


# --- steps ---


async def test_steps_deliver_one_document_at_a_time(conn: Conn, config: Path, store: FakeStore) -> None:
    conn.execute("INSERT INTO public.goods SELECT g, 1 FROM generate_series(1, 3) AS g")
    conn.execute("SELECT tube_pause('t')")
    async with running(config):
        await beside(admin.wait_until_halted, conn, "t")
        await wait_until_async(lambda: admin.pauses(conn, "t")[0].halted_since, what="it rests")
        (pod,) = admin.list_pods(conn, Pods("t"))
        store.poison = {2}
        came = [await beside(admin.step, conn, "t", pod.seq, 0, key) for key in ("1", "2")]
        assert [one.outcome for one in came] == ["delivered", "failed"]
        assert came[1].reason == "no such field: hunter2"
        store.down = True
        unsent = await beside(admin.step, conn, "t", pod.seq, 0, "3")
        assert (unsent.outcome, unsent.reason) == ("unsent", "nobody at home")
        store.down = False
        assert (await beside(admin.step, conn, "t", pod.seq, 0, "3")).is_done
        assert store.ids == [1, 3]
        assert admin.list_pods(conn, Pods("t"))[0].keys == ["2"]
        assert admin.ack_pods(conn, Pods("t", key="2")) == 1
        assert is_empty(conn)


async def test_the_terminal_is_closed_in_the_middle_of_a_step(conn: Conn, config: Path) -> None:
    """The question is not answered any more: nothing was asked of the worker, and the tube is as it was."""
    insert(conn, 1, 2)
    conn.execute("SELECT tube_pause('t')")
    async with running(config):
        await wait_until_async(lambda: admin.pauses(conn, "t")[0].halted_since, what="it rests")

        def close_after_the_first() -> Any:
            return CliRunner().invoke(
                cli, ["--config", str(config), "pods", "step", "--tube", "t"], input="y\n"
            )

        came = await beside(close_after_the_first)
    assert came.exit_code == 2
    assert STORE.ids == [1]
    assert [pod.keys for pod in admin.list_pods(conn, Pods("t"))] == [["2"]]
    assert scalar(conn, "SELECT count(*) FROM tube_step WHERE ended_at IS NULL") == 0


@pytest.mark.usefixtures("config")
def test_a_step_that_is_interrupted_before_a_worker_took_it_is_taken_back(
    conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(conn, 1)
    admin.pause(conn, "t")
    conn.execute("SELECT tube_leader_acquire('t', 1, 0, gen_random_uuid(), gen_random_uuid(), 'c', 0)")
    conn.execute("INSERT INTO tube_halted SELECT leader_id, now() FROM tube_leaders('t')")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytube.admin.pausing.time.sleep", interrupt)
    (pod,) = admin.list_pods(conn, Pods("t"))
    with pytest.raises(KeyboardInterrupt):
        admin.step(conn, "t", pod.seq, 0, "1")
    assert scalar(conn, "SELECT error FROM tube_step") == "it was taken back"
    conn.execute("SELECT tube_step_ask('t', %s, 0, '1')", (pod.seq,))
    with pytest.raises(StepBusy):
        admin.step(conn, "t", pod.seq, 0, "1")


# --- commands ---


@pytest.mark.usefixtures("config")
def test_touches_of_ids_and_of_a_query(conn: Conn, dsn: str) -> None:
    insert(conn, 1, 2, 3)
    conn.execute("DELETE FROM tube.t")
    assert "2 documents" in run("touch", "t", "public.goods", "1", "2", "1", dsn=dsn).stdout
    run("touch", "t", "public.goods", "--query", "SELECT id FROM goods WHERE id > 2 -- hunter2", dsn=dsn)
    rows = conn.execute("SELECT op, ids FROM tube.t ORDER BY seq").fetchall()
    assert rows == [("T", [1, 2]), ("T", [3])]
    first, second = run_json("audit", "--tube", "t", dsn=dsn)
    assert second["details"] == {"table": "public.goods", "count": 2, "keys": ["1", "2"]}
    assert set(first["details"]) == {"table", "query_sha256"}
    for arguments, said in {
        ("t", "public.goods"): "give ids, or --query",
        ("t", "public.goods", "x"): "'x' is not a valid id",
        ("no", "public.goods", "1"): "there is no tube 'no'",
        ("t", "public.none", "1"): "there is no table",
        ("t", "pg_class", "1"): "not attached",
        ("t", "public.goods", "--query", " ; "): "the query is empty",
    }.items():
        assert said in run("touch", *arguments, dsn=dsn, code=2).stderr
    assert scalar(conn, "SELECT count(*) FROM tube.t") == 2
    assert len(admin.audit(conn)) == 2


@pytest.mark.usefixtures("config")
def test_many_touches_go_behind_live_changes_and_few_together_with_them(conn: Conn, dsn: str) -> None:
    few, many = TOUCHED_AT_ONCE, TOUCHED_AT_ONCE + 1
    for table_ids, op in ((few, "T"), (many, "B")):
        query = f"SELECT generate_series(1, {table_ids})"
        said = run("touch", "t", "public.goods", "--query", query, dsn=dsn).stdout
        assert ("behind live changes" in said) == (op == "B")
        assert conn.execute("SELECT op, sum(cardinality(ids)) FROM tube.t GROUP BY op").fetchall() == [
            (op, table_ids)
        ]
        conn.execute("DELETE FROM tube.t")
        assert admin.touch(conn, "t", "public.goods", [str(n) for n in range(table_ids)]) == table_ids
        assert conn.execute("SELECT DISTINCT op FROM tube.t").fetchall() == [(op,)]
        conn.execute("DELETE FROM tube.t")


def test_pods_by_commands(conn: Conn, config: Path, dsn: str) -> None:
    insert(conn, 1, 2)
    folder = config.parent
    first, second = run_json("pods", "list", "--tube", "t", dsn=dsn)
    assert (first["keys"], first["state"]) == (["1"], "waiting")
    assert "1 pod of tube t" in run("pods", "discard", "--tube", "t", "--key", "1", dsn=dsn, code=2).stderr
    shown = run("pods", "show", "--tube", "t", "--seq", str(first["seq"]), folder=folder).stdout
    assert 'now: {"id": 1, "n": 1}' in shown
    assert "sink: not known: " in shown
    run(
        "pods",
        "retry",
        "--tube",
        "t",
        "--from",
        str(first["seq"]),
        "--to",
        str(first["seq"]),
        "--yes",
        dsn=dsn,
    )
    assert [row["keys"] for row in run_json("pods", "list", "--tube", "t", dsn=dsn)] == [["2"], ["1"]]
    assert (
        "1 pod is discarded" in run("pods", "discard", "--tube", "t", "--key", "2", "--yes", dsn=dsn).stdout
    )
    assert (
        "no such pods" in run("pods", "discard", "--tube", "t", "--from", "9999999", "--yes", dsn=dsn).stdout
    )
    assert "of 0 keys" in run("pods", "reset", "--tube", "t", dsn=dsn).stdout
    assert second["seq"] > first["seq"]


@pytest.mark.usefixtures("config")
def test_parked_documents_by_commands(conn: Conn, dsn: str) -> None:
    conn.execute(
        "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
        " SELECT 't', 0, g::text, 'U', g, CASE WHEN g < 8 THEN 'Mapper: bad' ELSE 'Other' END, 5, 1"
        " FROM generate_series(1, 9) AS g"
    )
    assert len(run_json("park", "list", "--tube", "t", "--error", "mapper", dsn=dsn)) == 7
    refused = run("park", "discard", "--tube", "t", "--error", "mapper", dsn=dsn, code=2)
    assert "discard 7 parked documents of tube t, 2 of them not shown?" in refused.stderr
    assert "error: Other" in run("park", "show", "--tube", "t", "--key", "9", dsn=dsn).stdout
    assert "7 parked" in run("park", "discard", "--tube", "t", "--error", "mapper", "--yes", dsn=dsn).stdout
    assert "2 parked" in run("park", "retry", "--tube", "t", "--yes", dsn=dsn).stdout
    assert run_json("park", "list", "--older-than", "1d", dsn=dsn) == []
    assert "no such documents" in run("park", "retry", "--tube", "t", "--key", "1", "--yes", dsn=dsn).stdout
    assert len(run_json("park", "list", "--tube", "t", "--key", "009", dsn=dsn)) == 1
    for command in ("list", "retry", "discard", "show"):
        refused = run("park", command, "--tube", "t", "--key", "nine", dsn=dsn, code=2)
        assert "not a valid id of this tube" in refused.stderr
    assert "name the tube of the key" in run("park", "list", "--key", "9", dsn=dsn, code=2).stderr
    assert "name the tube" in run("park", "discard", "--yes", dsn=dsn, code=2).stderr
    assert "is not a valid duration" in run("park", "list", "--older-than", "soon", dsn=dsn, code=2).stderr


@pytest.mark.usefixtures("config")
def test_a_document_that_is_parked_while_the_command_asks_is_left_alone(
    conn: Conn, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = (
        "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
        " SELECT 't', 0, %s, 'U', 1, 'bad', 5, 1"
    )
    conn.execute(insert, ("1",))

    def confirm(question: str, **_: bool) -> None:
        assert "discard 1 parked document of tube t?" in question
        conn.execute(insert, ("2",))

    monkeypatch.setattr(context, "confirm", confirm)
    assert "1 parked document is discarded" in run("park", "discard", "--tube", "t", dsn=dsn).stdout
    assert [row.id for row in admin.list_parked(conn, Parking("t"))] == ["2"]


@pytest.mark.usefixtures("config")
def test_a_pause_by_commands(dsn: str) -> None:
    said = run("pause", "--tube", "t", "--for", "10m", "--reason", "the index moves", dsn=dsn).stdout
    assert "t is paused for 0:10:00" in said
    (status,) = run_json("status", dsn=dsn)
    assert (status["state"], status["paused_kind"]) == ("free", "operator")
    assert 500 < status["paused_for"] <= 600
    assert "the index moves" in run("status", dsn=dsn).stderr
    assert "is still paused" in run("resume", "--tube", "t", "--partition", "0", dsn=dsn).stderr
    assert "t is resumed" in run("resume", "--tube", "t", dsn=dsn).stdout
    assert "was not paused" in run("resume", "--tube", "t", dsn=dsn).stdout


@pytest.mark.usefixtures("config")
def test_a_pause_says_that_a_leader_has_not_come_to_rest(conn: Conn, dsn: str) -> None:
    acquire(conn, Claim(tube="t"))
    command = ("pause", "--tube", "t", "--wait")
    assert "has not come to rest yet" in run(*command, "0.1", dsn=dsn, code=1).stderr
    assert "has not come to rest yet" in run(*command, "0", dsn=dsn, code=1).stderr, "the sends go on"


COMMANDS = {
    "pods list": ("pods", "list", "--tube", "no"),
    "pods retry": ("pods", "retry", "--tube", "no", "--yes"),
    "pods discard": ("pods", "discard", "--tube", "no", "--yes"),
    "pods reset": ("pods", "reset", "--tube", "no"),
    "park list": ("park", "list", "--tube", "no"),
    "park show": ("park", "show", "--tube", "no", "--key", "1"),
    "park retry": ("park", "retry", "--tube", "no", "--yes"),
    "park discard": ("park", "discard", "--tube", "no", "--yes"),
    "pause": ("pause", "--tube", "no"),
    "resume": ("resume", "--tube", "no"),
    "touch": ("touch", "no", "public.goods", "1"),
}


@pytest.mark.usefixtures("config")
def test_commands_on_an_unknown_tube(dsn: str) -> None:
    for name, arguments in COMMANDS.items():
        assert re.search("there is no tube (or outbox )?'no'", run(*arguments, dsn=dsn, code=2).stderr), name


def test_what_cant_be_stepped_or_acknowledged(conn: Conn, config: Path) -> None:
    insert(conn, 1)
    said = run("pods", "step", "--tube", "t", folder=config.parent, code=2).stderr
    assert "is not paused" in said
    conn.execute("SELECT tube_leader_acquire('t', 1, 0, gen_random_uuid(), gen_random_uuid(), 'c', 0)")
    conn.execute("SELECT * FROM tube_pods_mark('t', 1, 0, (SELECT leader_id FROM tube_leaders('t')))")
    with pytest.raises(PodsInFlight, match="1 of these pods are in flight, the first is .* by c"):
        admin.ack_pods(conn, Pods("t"))
    with pytest.raises(NotPaused):
        admin.step(conn, "t", admin.list_pods(conn, Pods("t"))[0].seq, 0, "1")
    with pytest.raises(UnknownTube):
        admin.ack_pods(conn, Pods("no"))


@pytest.mark.usefixtures("config")
def test_looking_needs_tube_monitor_and_acting_tube_admin(conn: Conn, dsn: str) -> None:
    insert(conn, 1)
    acts = (
        "pods retry",
        "pods discard",
        "pods reset",
        "park retry",
        "park discard",
        "pause",
        "resume",
        "touch",
    )
    with roles(dsn, "looker IN ROLE tube_monitor"):
        theirs = as_role(dsn, "looker")
        for name, arguments in COMMANDS.items():
            mine = ["t" if one == "no" else one for one in arguments]
            if name in acts:
                conn.execute(
                    "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
                    " VALUES ('t', 0, '1', 'U', 1, 'x', 1, 1) ON CONFLICT DO NOTHING"
                )
                assert "the role looker may not do that" in run(*mine, dsn=theirs, code=2).stderr, name
            else:
                run(*mine, dsn=theirs)
        run("audit", dsn=theirs)
    assert admin.audit(conn) == []


@pytest.mark.usefixtures("config")
def test_arguments_that_can_not_be(conn: Conn, dsn: str) -> None:
    """Exit code 2 also where Postgres finds it out, and nothing is changed."""
    for arguments, says in {
        ("tube", "attach", "t", "public.goods", "--columns", "nope"): "public.goods has no column nope",
        ("tube", "create", "t", "--keys", "uuid"): "bigint",
        ("touch", "t", "public.goods", "--query", "selct 1"): "syntax error",
        ("touch", "t", "public.goods", "--query", "SELECT 'x'"): "x",
        ("audit", "--tube", "nope"): "there is no tube or outbox 'nope', and the audit has no entries",
    }.items():
        assert says in run(*arguments, dsn=dsn, code=2).stderr, arguments
    assert admin.audit(conn) == []
    assert run("audit", "--tube", "t", dsn=dsn).stdout == "when\twho\tclient\taction\ttube\tdetails\n"
    run("pause", "--tube", "t", dsn=dsn)
    run("tube", "drop", "t", "--force", dsn=dsn)
    assert "pause" in run("audit", "--tube", "t", dsn=dsn).stdout


@pytest.mark.usefixtures("config")
def test_a_database_that_is_read_only(conn: Conn, dsn: str) -> None:
    insert(conn, 1)
    with psycopg.connect(dsn, autocommit=True, options="-c default_transaction_read_only=on") as standby:
        assert len(admin.list_pods(standby, Pods("t"))) == 1
        for act in (
            lambda: admin.retry_pods(standby, Pods("t")),
            lambda: admin.ack_pods(standby, Pods("t")),
            lambda: admin.pause(standby, "t"),
            lambda: admin.touch(standby, "t", "public.goods", ["1"]),
        ):
            with pytest.raises(UsageError, match="the database is read-only"):
                act()
    assert admin.audit(conn) == []
