"""`python -m bench.pgsync [ORDERS [PROBES]]`: the same documents by PGSync and by pytube.

No part of `make bench`: it installs PGSync from PyPI, into a folder that it deletes afterwards.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from opensearchpy import OpenSearch as Client
from opensearchpy.helpers import bulk, scan
from redis import Redis as RedisClient

from bench.frame import machine
from bench.frame.page import table
from bench.frame.readings import cpu_of
from bench.frame.server import SETTINGS, Server, connect
from bench.frame.statistics import percentile
from bench.frame.workers import ROOT, wait_for
from bench.nested_orders import (
    DOCUMENT,
    INDEX,
    KINDS,
    ORDERS_OF_PRODUCT,
    OTHER_CHANGES,
    ROWS,
    TABLES,
    WANTED,
    plain,
    schema,
)
from bench.pgsync_page import AS_IT_COMES, OWN, SHORT, SHORT_POLLS, STREAMED, SYNC, Load, Results
from pytube.db.install import install
from pytube.embedded.postgres import Postgres
from pytube.embedded.process import HOST
from pytube.embedded.redis import Redis
from pytube.embedded.search_server import VERSION, OpenSearch

PGSYNC = "7.3.*"
ORDERS, PROBES = 100_000, 50
WARMING = 20_000
"""Documents that the search server takes before anything is measured: a new one is slow."""
PAUSE = 0.1, 0.4
"""Seconds between a change that was seen and the next, at random, so as not to fall in step with any poll."""
ASK_EACH = 0.001
LOAD_LIMIT, PROBE_LIMIT, SETTLE_LIMIT = 900.0, 30.0, 60.0
MISSED = 2
"""Changes of a round that may not come in time, before it is given up."""


def main(orders: int = ORDERS, probes: int = PROBES) -> None:
    """Measure, and print."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pytube-bench-", dir="/tmp")))
        folder.chmod(0o755)
        programs = _install(folder / "pgsync")
        settings = {**SETTINGS, "wal_level": "logical"}
        server = Server(stack.enter_context(Postgres(folder / "pg", "system", settings=settings)))
        redis = stack.enter_context(Redis(folder / "redis"))
        search = stack.enter_context(OpenSearch(folder / "search"))
        bench = Bench(folder, programs, server, redis, search, orders, probes)
        about = table(["what", "which"], machine.describe(server.postgres.dsn()))
        print(f"{about}\n\n{bench.run().section().markdown()}", flush=True)


def _install(folder: Path) -> Path:
    """PGSync in a virtual environment of its own; where its programs are."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    pip = [str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", f"pgsync=={PGSYNC}"]
    subprocess.run(pip, check=True)
    return programs


@dataclass
class Tool:
    """One of the two, as it is run."""

    name: str
    dsn: str
    index: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


Probe = tuple[str, str, int, list[str]]
"""The kind, the statement, the row that it changes, the documents that show it."""


@dataclass
class Bench:
    """The servers, and what is done with them."""

    folder: Path
    programs: Path
    server: Server
    redis: Redis
    search: OpenSearch
    orders: int
    probes: int

    def __post_init__(self) -> None:
        """Nobody is measured yet."""
        self._client = Client(self.search.url, timeout=60)
        self._changed = 0

    def run(self) -> Results:
        """Both tools, one after the other."""
        theirs, own = self._databases()
        self._warm()
        pytube, sync = self._pytube(own), self._pgsync(theirs)
        with self._running(pytube):
            loads = {OWN: self._load(pytube)}
            took = {OWN: self._round(pytube, "pytube")}
            same = {OWN: self._compare(pytube)}
        self._bootstrap(sync)
        with self._running(sync):
            loads[SYNC] = self._load(sync)
            took[AS_IT_COMES] = self._round(sync, "first")
        sync.environment["POLL_TIMEOUT"] = SHORT
        with self._running(sync):
            took[SHORT_POLLS] = self._round(sync, "short")
            same[SYNC] = self._compare(sync)
        self._bootstrap(sync, "--teardown")
        sync.command = [*sync.command[:-1], "--wal", "--bootstrap"]
        with self._running(sync):
            took[STREAMED] = self._round(sync, "streamed")
            same[STREAMED] = self._compare(sync)
        return Results(self._versions(), self.orders, self.probes, loads, took, same)

    def _versions(self) -> str:
        code = "import importlib.metadata as m; print(m.version('pgsync'))"
        python = [str(self.programs / "python"), "-c", code]
        found = subprocess.run(python, check=True, capture_output=True, text=True).stdout.strip()
        with RedisClient.from_url(self.redis.url) as client:
            redis = client.info("server")["redis_version"]
        return f"PGSync {found}, {self.server.name}, OpenSearch {VERSION}, Redis {redis}."

    # --- the databases and the tools --------------------------------------------------------------

    def _databases(self) -> tuple[str, str]:
        """One for each tool, with the same rows."""
        plain, own = self.server.postgres.dsn("plain"), self.server.postgres.dsn("own")
        with connect(self.server.postgres.dsn()) as admin:
            admin.execute("CREATE DATABASE plain")
            with connect(plain) as filling:
                rows = ROWS.format(orders=self.orders, products=3 * self.orders // ORDERS_OF_PRODUCT)
                filling.execute((TABLES + rows).encode())
            admin.execute("CREATE DATABASE own TEMPLATE plain")
        install(own)
        for dsn in (plain, own):
            with connect(dsn) as admin:
                admin.execute("VACUUM ANALYZE")
                admin.execute("CHECKPOINT")
        return plain, own

    def _warm(self) -> None:
        words = "some words about an order and its items "
        self._client.indices.create(index="warming", body={"settings": INDEX})
        bulk(
            self._client,
            ({"_index": "warming", "_id": n, "n": n, "text": words * 5} for n in range(WARMING)),
            chunk_size=500,
        )
        self._client.indices.delete(index="warming")

    def _pytube(self, dsn: str) -> Tool:
        file = self.folder / "pytube.toml"
        file.write_text(DOCUMENT.format(dsn=dsn, url=self.search.url))
        command = [sys.executable, "-m", "pytube", "--config", str(file)]
        environment = {"PYTHONPATH": str(ROOT)}
        self._once([*command, "apply", "--yes", "--backfill"], environment)
        return Tool("pytube", dsn, "pytube", [*command, "worker"], environment)

    def _pgsync(self, dsn: str) -> Tool:
        file = self.folder / "schema.json"
        file.write_text(json.dumps(schema()))
        address = {
            "PG_HOST": HOST,
            "PG_PORT": str(self.server.postgres.port),
            "PG_USER": "postgres",
            "REDIS_URL": self.redis.url,
            "OPENSEARCH": "True",
            "ELASTICSEARCH_URL": self.search.url,
            "ELASTICSEARCH_TIMEOUT": "60",
            "GENERAL_LOGGING_LEVEL": "WARNING",
            "CHECKPOINT_PATH": str(self.folder),
        }
        command = [str(self.programs / "pgsync"), "--config", str(file), "--daemon"]
        return Tool("PGSync", dsn, "pgsync", command, address)

    def _bootstrap(self, sync: Tool, *options: str) -> None:
        self._once([str(self.programs / "bootstrap"), *sync.command[1:3], *options], sync.environment)

    def _once(self, command: Sequence[str], environment: dict[str, str]) -> None:
        own = {**os.environ, **environment}
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder, env=own)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")

    @contextmanager
    def _running(self, tool: Tool) -> Iterator[None]:
        """While its process runs; if that fails, its log is shown."""
        file = self.folder / f"{tool.name}.log"
        self._began = time.perf_counter()
        with file.open("wb") as log:
            self._process = subprocess.Popen(
                tool.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **tool.environment},
            )
        try:
            yield
        except BaseException:
            print(file.read_text(errors="replace")[-4000:], file=sys.stderr)
            raise
        finally:
            self._process.kill()
            self._process.wait()

    # --- what is measured -------------------------------------------------------------------------

    def _load(self, tool: Tool) -> Load:
        before = self._cpu()
        wait_for(lambda: self._indexed(tool.index) >= self.orders, f"{tool.name} loads", LOAD_LIMIT, 0.05)
        seconds = time.perf_counter() - self._began
        after = self._cpu()
        self._client.indices.refresh(index=tool.index)
        found = self._client.count(index=tool.index)["count"]
        assert found == self.orders, f"{tool.name} has {found} documents"
        cpu = {part: after[part] - before[part] for part in after}
        _tell(f"{tool.name}: {self.orders:,} documents in {seconds:.1f} s, CPU {cpu}")
        return Load(seconds, cpu)

    def _indexed(self, index: str) -> int:
        """How many documents were written to it; this refreshes nothing."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{self._process.args!r} has ended")
        if not self._client.indices.exists(index=index):
            return 0
        found = self._client.indices.stats(index=index, metric="indexing")
        return int(found["_all"]["primaries"]["indexing"]["index_total"])

    def _cpu(self) -> dict[str, float]:
        return {
            "Postgres": cpu_of(self.server.postgres.pid),
            "the tool": cpu_of(self._process.pid) + cpu_of(self.redis.pid),
            "OpenSearch": cpu_of(self.search.pid),
        }

    def _round(self, tool: Tool, label: str) -> dict[str, list[float]]:
        """Milliseconds of changes of each kind, in turn."""
        with connect(tool.dsn) as admin:
            wait_for(lambda: self._seen(admin, tool, f"{label} begins"), f"{tool.name} listens", LOAD_LIMIT)
            found: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for number, probe in enumerate(self._chosen(admin)):
                found[probe[0]].append(self._probe(admin, tool, probe, f"{label} {number}."))
                if sum(took.count(math.inf) for took in found.values()) > MISSED:
                    break
        _tell(f"{tool.name}, {label}: {[f'{percentile(took, 0.5):.1f} ms' for took in found.values()]}")
        return found

    def _seen(self, admin: psycopg.Connection, tool: Tool, label: str) -> bool:
        """Whether changes arrive: each is another one, since those before the tool listens may be lost."""
        admin.execute("UPDATE shop.orders SET status = %s WHERE id = 1", [f"{label} {time.monotonic_ns()}"])
        time.sleep(1)
        return label in str(self._get(tool.index, ["1"]))

    def _chosen(self, admin: psycopg.Connection) -> list[Probe]:
        """The same rows each time, the kinds in turn."""
        of_kind = [
            [
                (kind, change, int(row), [str(order) for order in orders])
                for row, orders in admin.execute(rows.encode(), [self.probes]).fetchall()
            ]
            for kind, (rows, change) in KINDS.items()
        ]
        return [probe for together in zip(*of_kind, strict=True) for probe in together]

    def _probe(self, admin: psycopg.Connection, tool: Tool, probe: Probe, value: str) -> float:
        """Milliseconds from the commit until all documents that show the row show its new value."""
        _, change, row, orders = probe
        time.sleep(random.uniform(*PAUSE))
        admin.execute(change.encode(), [value, row])
        began = time.perf_counter()
        what = f"{tool.name}: {change} of row {row} in orders {orders}"
        try:
            wait_for(
                lambda: all(value in str(found) for found in self._get(tool.index, orders)),
                what,
                PROBE_LIMIT,
                ASK_EACH,
            )
        except TimeoutError as missed:
            _tell(str(missed))
            return math.inf
        return (time.perf_counter() - began) * 1000

    def _get(self, index: str, ids: list[str]) -> list[dict[str, Any]]:
        found = self._client.mget(index=index, body={"ids": ids}, params={"realtime": "true"})
        return list(found["docs"])

    # --- are they equal? --------------------------------------------------------------------------

    def _compare(self, tool: Tool) -> str:
        """Whether the index has what the rows say, after changes of other sorts."""
        self._changed += self.orders // 5
        with connect(tool.dsn) as admin:
            for statement in OTHER_CHANGES:
                admin.execute(statement.format(n=self._changed).encode())
            wanted = {key: plain(document) for key, document in admin.execute(WANTED.encode()).fetchall()}
        deadline = time.monotonic() + SETTLE_LIMIT
        while True:
            self._client.indices.refresh(index=tool.index)
            hits = scan(self._client, index=tool.index, size=2000)
            found = {hit["_id"]: plain(hit["_source"]) for hit in hits}
            wrong = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
            if not wrong:
                return f"{len(found):,} documents, all equal"
            if time.monotonic() > deadline:
                return f"{len(wrong):,} of {len(wanted):,} differ: {', '.join(wrong[:8])}"


def _tell(words: str) -> None:
    print(f"{time.strftime('%X')} {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
