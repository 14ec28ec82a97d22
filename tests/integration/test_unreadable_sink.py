"""A sink that can't be read, and a source that was replaced: what is told to do about it works."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from pytube.config import load
from pytube.worker import Worker
from tests.helpers import cli
from tests.helpers.receiver import Receiver
from tests.helpers.terms import Conn, scalar
from tests.helpers.waiting import wait_until_async

CONFIG = """
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
[tube.t.sink]
type = "webhook"
url = "{url}"
allow_plain_http = true
allowed_networks = ["127.0.0.0/8"]
"""


async def test_it_is_filled_again_and_the_report_ends(dsn: str, conn: Conn, tmp_path: Path) -> None:
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
    conn.execute("SELECT tube_ensure_exists('t')")
    conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 0)")
    conn.execute("INSERT INTO public.goods VALUES (1), (2)")
    conn.execute("SELECT tube_source_check()")
    conn.execute("UPDATE tube_source SET timeline = 7")

    def do(*command: str, code: int = 0) -> str:
        process = cli.start(*command, config=tmp_path / "pytube.toml")
        out, err = process.communicate(timeout=60)
        assert process.returncode == code, out + err
        return out + err

    with Receiver() as receiver:
        config = tmp_path / "pytube.toml"
        config.write_text(CONFIG.format(dsn=dsn, url=receiver.url))
        worker = Worker(load(config))
        await worker.start()
        try:
            await wait_until_async(lambda: scalar(conn, "SELECT count(*) FROM t") == 0, what="drained")
            said = await asyncio.to_thread(do, "status")
            refused = await asyncio.to_thread(do, "verify", "--tube", "t", code=2)
            found = re.search(r"if the sink can't be read: pytube ([^;]+)", said)
            assert found is not None, said
            assert "pytube backfill start t" in refused
            before = len(receiver.requests)
            await asyncio.to_thread(do, *found[1].split())
            assert len(receiver.requests) > before
            assert "was replaced" not in await asyncio.to_thread(do, "status")
        finally:
            await worker.stop()
