"""`pg_upgrade` of a database where pytube is an extension."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pytube.config import parse
from pytube.worker import Worker
from tests.extension.conftest import SQL, _copied, make_install
from tests.extension.test_extension import CREATE, WORKER, delivered
from tests.helpers.capture import TABLE, asked, open_session, set_up
from tests.helpers.database import server_folder
from tests.helpers.waiting import wait_until_async
from tests.sql.test_pg_upgrade import Upgrade


class ExtensionUpgrade(Upgrade):
    """From the machine's version; the new server finds the extension's files by a setting."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "system")
        self._path = folder / "control"
        self.old._bin = _copied(self.old, folder)
        make_install(SQL, f"PG_CONFIG={self.old.bin('pg_config')}")
        make_install(SQL, f"EXTENSION_DIR={self._path}/extension")

    def _call(self, program: str, *options: str) -> None:
        super()._call(program, *options)
        if program == "initdb":
            with (self._data / "postgresql.conf").open("a") as conf:
                conf.write(f"extension_control_path = '$system:{self._path}'\n")


@pytest.fixture
def upgrade() -> Iterator[ExtensionUpgrade]:
    with server_folder() as folder:
        upgrade = ExtensionUpgrade(folder)
        upgrade.old.start()
        yield upgrade
        upgrade.close()


@pytest.mark.older_server
async def test_the_extension_is_moved_and_capture_and_delivery_go_on(
    upgrade: ExtensionUpgrade, tmp_path: Path
) -> None:
    with psycopg.connect(upgrade.old.dsn(), autocommit=True) as session:
        session.execute(CREATE)
    with open_session(upgrade.old.dsn()) as conn:
        set_up(conn, predicate="id > 0")
        conn.execute(f"INSERT INTO {TABLE} VALUES (1), (-1)")
    upgrade.run()
    sink = tmp_path / "sink.jsonl"
    with open_session(upgrade.new.dsn()) as conn:
        conn.execute(f"INSERT INTO {TABLE} VALUES (2), (-2)")
        assert asked(conn) == [], "the table was captured all the time"
        worker = Worker(parse(WORKER, environment={"DSN": upgrade.new.dsn(), "SINK": str(sink)}))
        await worker.start()
        try:
            await wait_until_async(lambda: delivered(sink) == {1, 2}, what="what was moved is delivered")
            conn.execute("ALTER EXTENSION pytube UPDATE TO 'any'; ALTER EXTENSION pytube UPDATE")
            conn.execute(f"INSERT INTO {TABLE} VALUES (3), (-3)")
            await wait_until_async(lambda: delivered(sink) == {1, 2, 3}, what="and what comes later")
        finally:
            await worker.stop()
