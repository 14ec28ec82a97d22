"""Blue/green reindex on real servers: with writers and workers that run, stop and are killed."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from pytube.config import load
from pytube.db.install import install
from pytube.embedded.search_server import SearchServer
from pytube.worker import Worker
from tests.conftest import Connect
from tests.docs.pages import BY_NAME
from tests.helpers import cli
from tests.helpers.opensearch import SMALL, Index, an_index, request
from tests.helpers.proxy import Mode, Proxy
from tests.helpers.roles import staff
from tests.helpers.waiting import LIMIT, wait_until

Connection = psycopg.Connection[Any]
ROWS = 300
TUBE = ("--tube", "items")


@pytest.fixture
def index(opensearch: SearchServer) -> Iterator[Index]:
    with an_index(opensearch.url) as index:
        yield index


@pytest.fixture
def items(conn: Connection) -> Connection:
    """An attached table of rows, all of which wait in the tube."""
    conn.execute("CREATE TABLE public.items (id bigint PRIMARY KEY, n int)")
    conn.execute("SELECT tube_ensure_exists('items', 2)")
    conn.execute("SELECT tube_table_ensure_attached('items', 'public.items', shard => 0, shards => 4)")
    conn.execute("INSERT INTO public.items SELECT g, 0 FROM generate_series(1, %s) g", (ROWS,))
    return conn


@pytest.fixture
def folder(dsn: str, index: Index, tmp_path: Path) -> Path:
    """A configuration."""
    configure(tmp_path, dsn, index)
    return tmp_path


def configure(folder: Path, dsn: str, index: Index, **more: Any) -> None:
    options = {"settings": SMALL, "mappings": {"dynamic": False}, "tombstone_seconds": 1, **more}
    lines = [f"{name} = {toml(value)}" for name, value in options.items()]
    (folder / "pytube.toml").write_text(
        f'[postgres]\ndsn = "{dsn}"\n'
        '[worker]\nelection = "lease"\nsession_timeout = 4.0\nreceive_deadline = 1.5\n'
        f'[tube.items.sink]\ntype = "opensearch"\nurl = "{index.server}"\nindex = "{index.name}"\n'
        "request_timeout = 2.5\n" + "\n".join(lines) + "\n[tube.items.backfill]\nchunk = 1\n"
    )


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {toml(item)}" for name, item in value.items()) + " }"
    return json.dumps(value)


@contextmanager
def working(folder: Path) -> Iterator[None]:
    """A worker in a thread, with a loop of its own that the test does not hold up."""
    started, over = threading.Event(), threading.Event()

    async def work() -> None:
        worker = Worker(load(folder / "pytube.toml"))
        await worker.start()
        started.set()
        await asyncio.to_thread(over.wait)
        await worker.stop()

    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(asyncio.run, work())
        try:
            wait_until(lambda: started.is_set() or run.done(), what="the worker starts")
            yield
        finally:
            over.set()
        run.result()


def reindex(folder: Path, *arguments: str, code: int = 0) -> str:
    """What `pytube reindex …` prints; without the log of a worker that runs in this process."""
    said = cli.run("reindex", *arguments, *TUBE, folder=folder, code=code).output
    return "".join(line for line in said.splitlines(keepends=True) if not line.startswith('{"timestamp"'))


def state(folder: Path) -> dict[str, Any]:
    return dict(cli.run_json("reindex", "status", *TUBE, folder=folder) or {})


def until_phase(folder: Path, phase: str) -> dict[str, Any]:
    """The state, once it is reached. While a busy server does not answer in time, it is unknown."""
    found: dict[str, Any] = {}

    def is_reached() -> bool:
        with suppress(AssertionError):  # the command fails then
            found.update(state(folder))
        return found.get("phase") == phase

    wait_until(is_reached, what=lambda: f"{phase}; it is {found}")
    return found


def rows(conn: Connection) -> dict[int, int]:
    return dict(conn.execute("SELECT id, n FROM public.items").fetchall())


def held(server: str, name: str) -> dict[int, int]:
    return {hit["_source"]["id"]: hit["_source"]["n"] for hit in Index(server, name).hits()}


def traces(index: Index) -> Any:
    """All indices of the test with their aliases."""
    return request(f"{index.server}/{index.name}*/_alias")


def on_the_page(step: str) -> str:
    """What docs/reindex.md says that a step prints."""
    start = f"$ pytube reindex {step} es-live\n"
    blocks = [block.text for block in BY_NAME["docs/reindex.md"].blocks("text")]
    (said,) = [text.removeprefix(start) for text in blocks if text.startswith(start)]
    return alike(said)


def as_on_the_page(index: Index, said: str) -> str:
    said = said.replace(index.name, "orders").replace("public.items", "public.orders")
    return alike(re.sub(r"(pytube reindex \w+) items\b", r"\1 es-live", said))


def alike(said: str) -> str:
    """Without the numbers and blanks that differ from run to run, and without how far the backfill is."""
    said = re.sub(r"[ \t]+", " ", re.sub(r"\d+", "0", said))
    return re.sub(r"^(backfill 0 of \S+:) .*", r"\1", said, flags=re.MULTILINE)


class Writer:
    """Changes rows at random until it is told to stop."""

    def __init__(self, connect: Connect) -> None:
        self._conn = connect()
        self._over = threading.Event()
        self._random = random.Random(7)  # repeatable
        self._last = ROWS

    def run(self) -> None:
        while not self._over.wait(0.01):
            key = self._random.randint(1, self._last)
            match self._random.randrange(4):
                case 0:
                    self._last += 1
                    self._conn.execute("INSERT INTO public.items VALUES (%s, 0)", (self._last,))
                case 1:
                    self._conn.execute("DELETE FROM public.items WHERE id = %s", (key,))
                case _:
                    self._conn.execute("UPDATE public.items SET n = n + 1 WHERE id = %s", (key,))

    @contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


def until_equal(conn: Connection, index: Index, *names: str) -> None:
    """Until the indices, by default the one that is searched, equal the table."""

    def differing() -> list[str]:
        return [name for name in names or [index.name] if held(index.server, name) != rows(conn)]

    wait_until(lambda: not differing(), what=lambda: f"{differing()} equal the table")


@pytest.mark.parametrize("mode", [Mode.CUT, Mode.HALF_OPEN])
def test_the_status_shows_what_postgres_knows_while_the_sink_does_not_answer(
    folder: Path, dsn: str, items: Connection, index: Index, mode: Mode
) -> None:
    with working(folder):
        until_equal(items, index)
    configure(folder, dsn, index)
    reindex(folder, "start")
    with Proxy(urlsplit(index.server).port or 0) as proxy:
        server = f"http://127.0.0.1:{proxy.port}"
        configure(folder, dsn, Index(server, index.name))
        assert state(folder)["phase"] == "filling"
        proxy.switch(mode)
        shown = cli.run("reindex", "status", *TUBE, folder=folder, code=3)
        as_json = cli.run("reindex", "status", *TUBE, "--json", folder=folder, code=3)
    assert re.search(r"^backfill \d+ of public.items: waiting$", shown.stdout, re.MULTILINE), shown.output
    assert "the sink of tube 'items' does not answer" in shown.stderr
    found = json.loads(as_json.stdout)
    assert (found["phase"], found["next"]) == ("unknown", "pytube reindex status items")
    assert [row["state"] for row in found["backfills"]] == ["waiting"]
    expected = "can't be reached" if mode is Mode.CUT else "did not answer within 2.5 s"
    assert expected in found["reason"] or "no whole answer" in found["reason"]


def test_under_writers_nothing_is_missed_and_readers_see_one_index_or_the_other(
    folder: Path, dsn: str, items: Connection, connect: Connect, index: Index
) -> None:
    with working(folder):
        until_equal(items, index)
        with Writer(connect).writing():
            mappings = {"dynamic": False, "properties": {"n": {"type": "keyword"}}}
            configure(folder, dsn, index, mappings=mappings)
            assert as_on_the_page(index, reindex(folder, "start")) == on_the_page("start")
            found = until_phase(folder, "filled")
            assert as_on_the_page(index, reindex(folder, "status")) == on_the_page("status")
            assert as_on_the_page(index, reindex(folder, "switch")) == on_the_page("switch")
            assert traces(index).keys() == {found["old"], found["new"]}
            assert index.name in traces(index)[found["new"]]["aliases"]
            assert (state(folder))["phase"] == "switched"
        # Both go on until the end, so that the alias may go back.
        until_equal(items, index, index.name, found["old"], found["new"])
        assert "on the old index" in reindex(folder, "switch", "--back")
        assert index.name in traces(index)[found["old"]]["aliases"]
        reindex(folder, "switch")
        assert as_on_the_page(index, reindex(folder, "finish", "--force")) == on_the_page("finish")
        assert traces(index) == {found["new"]: {"aliases": {index.name: {}}}}
        items.execute("UPDATE public.items SET n = -1 WHERE id % 7 = 0")
        until_equal(items, index)
    mapped = request(f"{index.url}/_mapping")[found["new"]]["mappings"]
    assert mapped["properties"]["n"] == {"type": "keyword"}
    assert mapped["_meta"].keys() - {"pytube_notes"} == {"pytube_origin"}


def test_a_worker_is_stopped_and_another_one_killed_while_it_is_filled(
    folder: Path, items: Connection, connect: Connect, index: Index
) -> None:
    stopped = cli.start("worker", *TUBE, config=folder / "pytube.toml")
    killed = None
    try:
        until_equal(items, index)
        with Writer(connect).writing():
            # It holds pods, and writes in flight, and knows of one index only.
            stopped.send_signal(signal.SIGSTOP)
            reindex(folder, "start")
            killed = cli.start("worker", *TUBE, config=folder / "pytube.toml")
            new = (state(folder))["new"]
            wait_until(lambda: len(held(index.server, new)) > 10, what="it is being filled")
            killed.kill()
            stopped.send_signal(signal.SIGCONT)
            found = until_phase(folder, "filled")
        until_equal(items, index, index.name, found["new"])
        assert "0 missing, 0 extra, 0 different" in reindex(folder, "compare")
    finally:
        for process in (stopped, killed):
            if process is not None:
                process.kill()
                process.communicate()


def test_a_reindex_is_abandoned_without_a_trace(folder: Path, items: Connection, index: Index) -> None:
    with working(folder), psycopg.connect(items.info.dsn) as late:
        until_equal(items, index)
        before = traces(index)
        late.execute("SELECT pg_current_xact_id()")  # the backfill waits for it
        reindex(folder, "start")
        new = (state(folder))["new"]
        items.execute("UPDATE public.items SET n = 1 WHERE id = 1")
        until_equal(items, index)
        assert "the new index is deleted" in reindex(folder, "abandon")
        assert traces(index) == before
        assert new not in before
        assert items.execute("SELECT DISTINCT state FROM tube_backfill").fetchall() == [("cancelled",)]
        items.execute("UPDATE public.items SET n = 2")
        until_equal(items, index)
    assert "nothing was deleted" in reindex(folder, "abandon")


# --- without a worker -----------------------------------------------------------------------------


def test_a_copy_that_differs_is_not_switched_to(folder: Path, items: Connection, index: Index) -> None:
    with working(folder):
        until_equal(items, index)
        reindex(folder, "start")
        found = until_phase(folder, "filled")
    # A change that is on its way is no difference, if it comes in time.
    items.execute("UPDATE public.items SET n = 5")
    with ThreadPoolExecutor(1) as thread:
        comparing = thread.submit(reindex, folder, "compare", "--timeout", str(LIMIT))
        with working(folder):
            assert "0 missing, 0 extra, 0 different" in comparing.result()
    spoil(index.server, found["new"])
    said = reindex(folder, "compare", "--timeout", "0", code=1)
    assert said.startswith(f"1 missing, 1 extra, 1 different, of {ROWS} keys compared (")
    assert set(said.splitlines()[1:]) == {
        "missing\tshard 3\tid 3",
        "different\tshard 0\tid 4",
        "extra\tshard 0\tid 5000",
    }
    said = reindex(folder, "switch", "--timeout", "0", code=1)
    assert "not switched, because the new index differs" in said
    assert state(folder)["phase"] == "filled"
    reindex(folder, "switch", "--timeout", "0", "--force")
    assert state(folder)["phase"] == "switched"
    assert "switched already" in reindex(folder, "start", code=2)
    assert "on the new index already" in reindex(folder, "abandon", code=2)


def spoil(server: str, name: str) -> None:
    """Take a document away, change one, and add one."""
    hits = {hit["_source"]["id"]: hit for hit in Index(server, name).hits()}
    request(f"{server}/{name}/_doc/{hits[3]['_id']}", "DELETE")
    request(f"{server}/{name}/_doc/{hits[4]['_id']}", "PUT", hits[4]["_source"] | {"n": True})
    stamp = hits[8]["_source"]["_pytube"] | {"id": 5000}
    request(f"{server}/{name}/_doc/0:5000", "PUT", {"_pytube": stamp, "id": 5000, "n": 1})


def test_what_stands_in_the_way_is_said_before_anything_is_made(
    folder: Path, items: Connection, index: Index
) -> None:
    assert "there is no alias" in reindex(folder, "start", code=2)
    assert traces(index) == {}
    with working(folder):
        until_equal(items, index)
    before = traces(index)
    for step in ("compare", "switch", "finish"):
        assert "is under way" in (said := reindex(folder, step, code=2)) or "not being reindexed" in said
    request(f"{index.url}/_doc/other", "PUT", {"by": "others"})
    assert "holds 1 document that tube 'items' has not written" in reindex(folder, "start", code=2)
    request(f"{index.url}/_doc/other", "DELETE")
    cli.run("backfill", "start", *TUBE, "--in-worker", folder=folder)
    assert "is under way, and a reindex begins another one" in reindex(folder, "start", code=2)
    cli.run("backfill", "cancel", *TUBE, folder=folder)
    assert traces(index) == before
    reindex(folder, "start")
    assert "is not filled yet" in reindex(folder, "switch", code=2)
    cli.run("backfill", "cancel", *TUBE, folder=folder)
    assert "was ended; `pytube reindex start` begins another one" in reindex(folder, "switch", code=2)
    reindex(folder, "start")
    assert (state(folder))["phase"] == "filling"
    reindex(folder, "abandon")
    assert traces(index) == before


def test_a_sink_that_cannot_is_refused(tmp_path: Path, dsn: str) -> None:
    (tmp_path / "pytube.toml").write_text(
        f'[postgres]\ndsn = "{dsn}"\n[tube.items.sink]\ntype = "jsonl"\npath = "x.jsonl"\n'
    )
    assert reindex(tmp_path, "start", code=2) == (
        "pytube: tube 'items' can't be reindexed: its sink is jsonl, and only a sink that has an alias for "
        "its documents can be, such as opensearch\n"
    )


def split(folder: Path, dsn: str, index: Index, *parts: str) -> None:
    """Have each row be as many documents, all alike."""
    configure(folder, dsn, index, parts=parts)
    members = ", ".join(f"'{name}', json_build_object('n', n)" for name in parts)
    with (folder / "pytube.toml").open("a") as file:
        file.write(
            '[tube.items.enrich]\nmode = "query"\n'
            f'query = "SELECT id, json_build_object({members}) FROM public.items WHERE id = ANY(%(ids)s)"\n'
        )


def test_documents_that_are_no_part_any_more_stay_in_the_old_index(
    folder: Path, dsn: str, items: Connection, index: Index
) -> None:
    items.execute("DELETE FROM public.items WHERE id > 3")

    def until_held(*parts: str) -> None:
        wanted = {f"{key}/{name}" for key in rows(items) for name in parts}
        wait_until(lambda: {key for _, key in index.values()} == wanted, what=f"the parts are {parts}")

    split(folder, dsn, index, "head", "old")
    with working(folder):
        until_held("head", "old")
    split(folder, dsn, index, "head")
    with working(folder):
        reindex(folder, "start")
        assert until_phase(folder, "filled")["new_documents"] == 3
        assert "0 missing, 0 extra, 0 different, of 3 keys compared" in reindex(folder, "switch")
        reindex(folder, "finish", "--force")
        until_held("head")


@pytest.mark.every_server
@pytest.mark.parametrize("superuser", [True, False])
def test_an_admin_reindexes(any_bare_dsn: str, index: Index, tmp_path: Path, superuser: bool) -> None:
    """Each command, as a member of tube_admin alone, beside a worker that is one of tube_worker alone."""
    with staff(any_bare_dsn, superuser=superuser, install=lambda dsn, name: install(dsn, roles=name)) as crew:
        members = f"{crew.name('admin')}, {crew.name('worker')}"
        crew.admin.execute("SET search_path = tube; CREATE TABLE public.items (id bigint PRIMARY KEY, n int)")
        crew.admin.execute(f"GRANT SELECT ON public.items TO {members}".encode())
        crew.admin.execute("SELECT tube_ensure_exists('items')")
        crew.admin.execute("SELECT tube_table_ensure_attached('items', 'public.items', 0)")
        crew.admin.execute("INSERT INTO public.items SELECT g, 0 FROM generate_series(1, 20) g")
        working_folder, folder = tmp_path / "worker", tmp_path / "admin"
        for one, kind in ((working_folder, "worker"), (folder, "admin")):
            one.mkdir()
            configure(one, crew.dsns[kind], index)
        with working(working_folder):
            until_equal(crew.admin, index)
            reindex(folder, "start")
            reindex(folder, "abandon")
            reindex(folder, "start")
            until_phase(folder, "filled")
            assert "0 missing, 0 extra, 0 different" in reindex(folder, "compare")
            reindex(folder, "switch")
            reindex(folder, "finish", "--force")
            assert len(traces(index)) == 1
