"""The view of the whole fleet: one sample of it, what does not fit together, `status --fleet`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from uuid import uuid4

import psycopg
import pytest
from pydantic import SecretStr

import pytube
from pytube.db.database import Database
from pytube.health import fleet
from pytube.health.disagreements import disagreements
from pytube.health.fleet import Count, FleetSample, Partition
from pytube.health.watcher import FleetWatcher
from pytube.model import OK, Batch, Result
from tests.helpers.cli import run, run_json
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.waiting import wait_until
from tests.integration.test_worker_faults import running

Conn = psycopg.Connection[tuple[object, ...]]
Connect = Callable[[], Conn]


def send(batch: Batch) -> Sequence[Result]:
    """Takes everything."""
    return [OK] * len(batch)


@pytest.fixture
def watcher(dsn: str) -> Iterator[FleetWatcher]:
    with closing(FleetWatcher([Database(SecretStr(dsn))])) as found:
        yield found


def of(sample: FleetSample, name: str, partition: int = 0) -> Partition:
    (found,) = [one for one in sample.partitions if (one.name, one.partition) == (name, partition)]
    return found


def acquire(
    conn: Conn, tube: str, partition: int, election: str = "neli", instance: str | None = None
) -> str:
    """Lead a partition; the id of the instance."""
    instance = instance or str(uuid4())
    conn.execute(
        "SELECT tube_leader_acquire(t.tube, t.partitions, %(partition)s, gen_random_uuid(), %(instance)s,"
        " 'me', tube_leader_epoch(t.tube, t.partitions, %(partition)s), %(election)s, '10 s',"
        " CASE WHEN %(election)s = 'lease' THEN interval '15 s' END)"
        " FROM tube_registry AS t WHERE t.tube = %(tube)s",
        {"tube": tube, "partition": partition, "instance": instance, "election": election},
    )
    return instance


def test_a_sample(conn: Conn, watcher: FleetWatcher) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 2), outbox_ensure_exists('o', 1)")
    sample = watcher.sample()
    assert [(queue.kind, queue.name, len(queue.partitions)) for queue in sample.queues] == [
        ("tube", "t", 2),
        ("outbox", "o", 1),
    ]
    assert of(sample, "t").lag is None
    assert sample.queues[0].rate_in is None, "one sample gives no rate"
    conn.execute(
        "INSERT INTO tube.t (op, shard, ids) SELECT 'U', 0, ARRAY[g] FROM generate_series(1, 150) AS g"
    )
    conn.execute(
        "INSERT INTO tube.t (op, shard, ids) SELECT 'B', 1, ARRAY[g] FROM generate_series(1, 3) AS g"
    )
    conn.execute("INSERT INTO tube.t (op, shard, ids, payload) VALUES ('T', 1, '{}', '{\"type\": \"x\"}')")
    conn.execute("SELECT outbox_stash('o', 'topic', 'key', 'value')")
    conn.execute(
        "INSERT INTO tube_parked (tube, shard, id, op, seq, error, attempts, epoch)"
        " SELECT 't', 1, g::text, 'U', g, 'no', 1, 1 FROM generate_series(1, 2) AS g"
    )
    conn.execute(
        "INSERT INTO tube_attempt (tube, shard, id, attempts, error, epoch, next_at)"
        " VALUES ('t', 0, '7', 1, 'no', 1, now())"
    )
    conn.execute("SELECT tube_pause('t', 1, reason => 'a look')")
    conn.execute("SELECT pg_stat_force_next_flush()")
    conn.execute("SELECT 1")
    with closing(FleetWatcher([watcher._hosts[0]._database])) as other:
        fresh = other.sample()
    first, second = of(fresh, "t", 0), of(fresh, "t", 1)
    assert (first.counted, first.backfill, first.retrying) == ("~150", Count(0), 1)
    assert (second.waiting, second.backfill, second.parked) == (Count(0), Count(3), Count(2)), (
        "control pods are left out"
    )
    assert first.lag is not None
    assert first.lag >= 0
    assert second.paused is not None
    assert "a look" in second.paused
    assert (of(fresh, "o").waiting, of(fresh, "o").parked) == (Count(1), Count(0))

    def rates() -> tuple[float | None, float | None]:
        queue = watcher.sample().queues[0]
        return queue.rate_in, queue.rate_out

    wait_until(lambda: (rates()[0] or 0) > 0, what="it is read again, and 153 pods were added")
    assert rates()[1] == 0


def test_a_backlog_that_is_worked_off_is_told_as_such(conn: Conn, connect: Connect, dsn: str) -> None:
    """While its lag grows, since nobody writes."""
    conn.execute("SELECT tube_ensure_exists('t')")
    acquire(conn, "t", 0)
    conn.execute(
        "INSERT INTO tube.t (op, shard, ids, ts)"
        " SELECT 'U', 0, ARRAY[g], now() - interval '1 min' FROM generate_series(1, 500) AS g"
    )
    done = Event()

    def deliver() -> None:
        with closing(connect()) as worker:
            while not done.wait(0.1):
                worker.execute(
                    "DELETE FROM tube.t WHERE seq IN (SELECT p.seq FROM tube.t AS p ORDER BY p.seq LIMIT 1)"
                )
                worker.execute("SELECT pg_stat_force_next_flush()")

    with ThreadPoolExecutor() as threads:
        threads.submit(deliver)
        try:
            said = [run(command, dsn=dsn).output for command in ("status", "doctor")]
        finally:
            done.set()
    assert "\nt: catching up: the backlog falls by about " in said[0]
    assert "catching up: the backlog falls by about " in said[1]


def test_a_tube_without_its_index_is_read_by_the_one_of_before(conn: Conn, watcher: FleetWatcher) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 2)")
    conn.execute(
        "INSERT INTO tube.t (op, shard, ids) SELECT 'U', g, ARRAY[g] FROM generate_series(0, 5) AS g"
    )
    conn.execute("UPDATE tube_registry SET partitions = 3 WHERE tube = 't'")
    assert [one.waiting for one in watcher.sample().partitions] == [Count(2)] * 3


def test_who_may_look(conn: Conn, dsn: str) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    names = [f"{name}_{database_name(dsn)}" for name in ("looker", "stranger")]
    with roles(dsn, f"{names[0]} IN ROLE tube_monitor", names[1]):
        samples = []
        for name in names:
            with closing(FleetWatcher([Database(SecretStr(as_role(dsn, name)))])) as watcher:
                samples.append(watcher.sample())
    looker, stranger = samples
    assert of(looker, "t").parked == Count(0)
    assert looker.hosts[0].unseen == []
    assert "permission denied" in stranger.down[None]


def test_a_database_that_is_away_is_told_and_comes_back(conn: Conn, watcher: FleetWatcher) -> None:
    conn.execute("SELECT tube_ensure_exists('t')")
    assert watcher.sample().down == {}
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pytube fleet'"
    )
    gone = watcher.sample()
    assert "Postgres is not available" in gone.down[None]
    assert gone.queues == []
    assert [queue.name for queue in watcher.sample().queues] == ["t"]


def test_what_does_not_fit(conn: Conn, watcher: FleetWatcher) -> None:
    conn.execute(
        "SELECT tube_ensure_exists('one', 2), tube_ensure_exists('two', 2), tube_ensure_exists('idle', 4)"
    )
    greedy, other, dead = (str(uuid4()) for _ in range(3))
    for instance, label in ((greedy, "greedy"), (other, "modest"), (dead, "dead")):
        conn.execute("SELECT * FROM tube_lease_ticks('{one}', %s, %s, '15 s')", (instance, label))
    conn.execute("UPDATE tube_instance SET seen_at = now() - interval '1 min' WHERE client_id = 'dead'")
    acquire(conn, "one", 0, "lease", greedy)
    acquire(conn, "one", 1, "lease", greedy)
    acquire(conn, "two", 0)
    conn.execute("SELECT * FROM tube_lease_ticks('{two}', %s, 'modest', '15 s')", (other,))
    sample = watcher.sample()
    found = {re.sub(r"\d+ s ago", "60 s ago", str(one)) for one in disagreements(sample, pytube.__version__)}
    assert {text.split(",")[0].split(" (")[0] for text in found} == {
        "worker greedy: leads 2 partitions of one",
        "two partition 1: no worker leads it",
        "tube two: workers hold two kinds of election",
        "worker dead: gave its last sign of life 60 s ago: it was killed",
    }
    workers = {worker.instance: worker for worker in sample.workers}
    assert [*workers[greedy.replace("-", "")[:12]].leads] == [("one", 0), ("one", 1)]
    assert workers[other.replace("-", "")[:12]].waits_for == ["one", "two"]


def test_a_worker_that_hangs_keeps_its_name(conn: Conn, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From when others have taken over what it led, for as long as its sessions are there."""
    monkeypatch.setattr(fleet, "SILENT", 0.0)
    conn.execute("SELECT tube_ensure_exists('t')")
    frozen = acquire(conn, "t", 0)
    conn.execute("UPDATE tube_leader SET hold = '1 hour'")  # it renews seldom, and so is not late
    digits = frozen.replace("-", "")[:12]

    watcher = FleetWatcher([Database(SecretStr(dsn))], exact=True)  # else a slow look is kept for long

    def told() -> list[str]:
        sample = watcher.sample()
        (one,) = [one for one in sample.workers if one.instance == digits]
        assert one.client_id == "me"
        return [str(said) for said in disagreements(sample, "1") if "worker me" in str(said)]

    def doctor() -> str:
        return "\n".join(line for line in run("doctor", dsn=dsn).output.splitlines() if "worker me" in line)

    names = [f"pytube {purpose} {digits} 1" for purpose in ("listener", "renewals")]
    listener, renewals = (psycopg.connect(dsn, application_name=name, autocommit=True) for name in names)
    with closing(watcher), closing(renewals), closing(listener):
        renewals.execute("SELECT 1")
        assert told() == []
        assert doctor() == ""
        conn.execute("UPDATE tube_leader SET renewed_at = renewed_at - interval '45 minutes'")
        (line,) = told()
        assert "another worker may take over its partitions (t partition 0)" in line
        said = run("status", dsn=dsn).output
        assert re.search(
            r"worker me is alive, but has renewed nothing for \d+ min: in \d+ min, another", said
        )
        renewals.execute("SELECT 1")
        acquire(conn, "t", 0)
        conn.execute(
            "UPDATE tube_leader SET renewed_at = clock_timestamp() + interval '1 hour'"
        )  # nor is this
        (line,) = told()
        assert line.startswith("worker me: is alive, but has renewed nothing for ")
        assert digits in line
        for command in ("doctor", "status"):
            assert "worker me is alive, but has renewed nothing" in run(command, dsn=dsn).output
        renewals.execute("SELECT 1")
        assert told() == []
        assert doctor() == ""


def test_a_backfill_after_a_loss_counts_from_its_begin_until_workers_have_noticed_its_end(
    conn: Conn, watcher: FleetWatcher
) -> None:
    conn.execute(
        "CREATE TABLE public.a (id bigint PRIMARY KEY); CREATE TABLE public.b (id bigint PRIMARY KEY)"
    )
    conn.execute("SELECT tube_ensure_exists('t')")
    for shard, table in enumerate("ab"):
        conn.execute("SELECT tube_table_ensure_attached('t', %s::regclass, %s)", (f"public.{table}", shard))
    conn.execute("INSERT INTO tube_sink (tube, emptied_at) VALUES ('t', clock_timestamp())")
    assert of(watcher.sample(), "t").refill is None
    for table in "ab":
        conn.execute(
            "INSERT INTO tube_backfill (tube, tbl, table_name, order_col, shard, shards, root, by_worker,"
            " start_seq, position) VALUES ('t', %s::regclass, 'x', 'id', 0, 1, true, true, 1, 1)",
            [f"public.{table}"],
        )
        assert of(watcher.sample(), "t").refill == "under way"
        conn.execute("UPDATE tube_backfill SET state = 'finished'")
        assert of(watcher.sample(), "t").refill == ("finished" if table == "b" else None)


async def test_a_worker_tells_its_version(dsn: str, conn: Conn, tmp_path: Path) -> None:
    conn.execute("SELECT tube_ensure_exists('t', 2)")
    config = tmp_path / "pytube.toml"
    config.write_text(f"""
        [postgres]
        dsn = "{dsn}"
        [worker]
        client_id = "mine"
        [tube.t.sink]
        type = "callable"
        target = "{__name__}:send"
    """)
    async with running(config) as worker:
        await worker.until(
            "it leads both", lambda: len(run_json("status", "--fleet", dsn=dsn)["workers"][:1]) == 1
        )

        def row() -> dict[str, object]:
            (found,) = run_json("status", "--fleet", dsn=dsn)["workers"]
            return dict(found)

        await worker.until("it leads both", lambda: len(row()["leads"]) == 2)  # type: ignore[arg-type]
        assert (row()["client_id"], row()["version"], row()["elections"]) == (
            "mine",
            pytube.__version__,
            ["lease"],
        )
        assert run_json("status", "--fleet", dsn=dsn)["disagreements"] == []
        assert "t 0-1" in run("status", "--fleet", dsn=dsn).stdout
        with closing(FleetWatcher([Database(SecretStr(dsn))])) as watcher:
            (said,) = disagreements(watcher.sample(), "9.9")
        assert str(said) == f"workers: 1 of them run pytube {pytube.__version__}, and this is 9.9"


def test_refusals(dsn: str) -> None:
    assert (
        "can't be combined with --prometheus" in run("status", "--fleet", "--watch", dsn=dsn, code=2).stderr
    )
    run("status", "--fleet", dsn="host=127.0.0.1 port=1", code=3)
