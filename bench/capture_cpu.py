"""Server CPU that capture adds to one committed statement: this checkout's SQL against another one's, paired.

    python -m bench.capture_cpu ../another-checkout [--version 15] [--rounds 30] [--statements 1000] [OP …]

A procedure commits after each statement, so one round trip runs many of them. Owner and writer are plain
roles, since Postgres checks no rights of superusers. A round runs all cases, each time in another order; a
case's figure is the first quartile of its rounds. CPU is the session's own, as Linux counts it. It is no part
of `make bench`: there is nothing to compare with until the SQL changes.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Any

import psycopg

from pytube.embedded.postgres import Version
from tests.helpers.database import INSTALL_SQL, TestServer

STATEMENTS = {
    "UPDATE": "UPDATE public.t_{c} SET v = v + 1 WHERE id = 1 + (i * 7919 + seed) % 20000",
    "INSERT": "INSERT INTO public.t_{c} (v, note) VALUES (1, 'a note of some length')",
    "UPSERT": "INSERT INTO public.t_{c} (id, v) VALUES (1 + (i * 7919 + seed) % 20000, 1)"
    " ON CONFLICT (id) DO UPDATE SET v = excluded.v",
    "DELETE": "DELETE FROM public.t_{c} WHERE id = 1 + (i * 7919 + seed) % 20000",
    "NOROW": "UPDATE public.t_{c} SET v = v + 1 WHERE id = -i",
    "UPDATE1000": "UPDATE public.n_{c} SET v = v + 1"
    " WHERE id BETWEEN (i % 90) * 1000 + 1 AND (i % 90) * 1000 + 1000",
    "INSERT1000": "INSERT INTO public.n_{c} (v) SELECT 0 FROM generate_series(1, 1000)",
    "TEMP": "CREATE TEMP TABLE x (id int); DROP TABLE x",
}
OPTIONS: dict[str, tuple[str | None, int]] = {"plain": (None, 1), "pred": ("v >= 0", 1), "s16": (None, 16)}
VERSIONS: dict[str, Version] = {"18": 18, "16": 16, "15": "system"}
OWNER, WRITER = "bench_owner", "bench_writer"


def make(dsn: str, server: TestServer, checkout: Path, roles: str) -> None:
    """Install a checkout's SQL, and make and attach the tables."""
    subprocess.run(
        [
            server.postgres.bin("psql"),
            "-qX",
            "-v",
            f"roles={roles}",
            "-f",
            checkout / "sql" / "install.sql",
            dsn,
        ],
        check=True,
    )
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SET client_min_messages = error")
        for case, (predicate, shards) in {"none": (None, 0), **OPTIONS}.items():
            conn.execute("SELECT tube.tube_ensure_exists(%s, 1, %s)", [f"q_{case}", predicate])
            for place, (kind, rows) in enumerate((("t", 20_000), ("n", 100_000))):
                table = f"public.{kind}_{case}"
                conn.execute(
                    f"CREATE TABLE {table} (id bigserial PRIMARY KEY, v int NOT NULL, note text)"
                    " WITH (fillfactor = 70);"
                    f"INSERT INTO {table} (v, note) SELECT 0, 'a note of some length'"
                    f" FROM generate_series(1, {rows}); ALTER TABLE {table} OWNER TO {OWNER};"
                    f"GRANT ALL ON {table} TO {WRITER};"
                    f"GRANT ALL ON SEQUENCE {table}_id_seq TO {WRITER}".encode()
                )
                if shards:
                    conn.execute(
                        "SELECT tube.tube_table_ensure_attached(%s, %s, %s, %s)",
                        [f"q_{case}", table, place * 16, shards],
                    )
        conn.execute("VACUUM ANALYZE")


class Case:
    """One session, and what its statements took."""

    def __init__(self, dsn: str, case: str, op: str) -> None:
        self._conn: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)
        self._loop = f"public.loop_{case}_{op}".lower()
        statement = STATEMENTS[op].format(c=case)
        self._conn.execute("SET synchronous_commit = off; SET client_min_messages = error")
        self._conn.execute(
            f"CREATE OR REPLACE PROCEDURE {self._loop}(seed int, n int) LANGUAGE plpgsql AS"
            f" $$ BEGIN FOR i IN 1..n LOOP {statement}; COMMIT; END LOOP; END $$".encode()
        )
        self._conn.execute(f"TRUNCATE tube.q_{case}".encode())
        self._conn.execute(f"SET SESSION AUTHORIZATION {WRITER}".encode())
        self.micros: list[float] = []

    def _cpu(self) -> int:
        return int(Path(f"/proc/{self._conn.info.backend_pid}/schedstat").read_text().split()[0])

    def run(self, seed: int, count: int) -> None:
        """Run so many, and note the CPU of each."""
        before = self._cpu()
        self._conn.execute(f"CALL {self._loop}({seed}, {count})".encode())
        self.micros.append((self._cpu() - before) / count / 1000)

    def quartile(self) -> float:
        """Microseconds of CPU for a statement; the first round warms up."""
        return sorted(self.micros[1:])[len(self.micros[1:]) // 4]


def measure(dsns: dict[str, str], op: str, rounds: int, count: int) -> None:
    """Print what each case takes, what it adds to no tube, and the ratio of new to old."""
    cases = {"none": Case(dsns["new"], "none", op)}
    for option in OPTIONS if op != "TEMP" else ["none"]:
        for state, dsn in dsns.items():
            cases[f"{option} {state}"] = Case(dsn, option, op)
    names = list(cases)
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in (names[turn:] + names[:turn])[:: 1 if number % 2 else -1]:
            cases[name].run(number * count, count)
    none = cases["none"].quartile()
    print(f"{op}: CPU µs each, added to none, to none, added new to old")
    for name, case in cases.items():
        option, _, state = name.partition(" ")
        took = case.quartile()
        ratio = ""
        if state == "new":
            old = cases[f"{option} old"].quartile()
            ratio = f"{(took - none) / (old - none):.2f}" if old > none else ""
        print(f"  {name:12s} {took:9.2f} {took - none:+9.2f} {took / none:7.3f} {ratio}", flush=True)


def main() -> None:
    """Measure on a server of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("other", type=Path, help="a checkout with the SQL to compare with")
    parser.add_argument("ops", nargs="*", help=", ".join(STATEMENTS))
    parser.add_argument("--version", choices=VERSIONS, default="18")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--statements", type=int, default=1000)
    given = parser.parse_args()
    server = TestServer(VERSIONS[given.version])
    try:
        with (
            server.database(installed=False) as old,
            server.database(installed=False) as new,
            psycopg.connect(old, autocommit=True) as conn,
        ):
            conn.execute(f"CREATE ROLE {OWNER}; CREATE ROLE {WRITER} LOGIN".encode())
            make(old, server, given.other, "oldtube")
            make(new, server, INSTALL_SQL.parent.parent, "newtube")
            for op in given.ops or STATEMENTS:
                count = given.statements // 20 if op.endswith("1000") else given.statements
                measure({"old": old, "new": new}, op, given.rounds, count)
    finally:
        server.close()


if __name__ == "__main__":
    main()
