"""A worker, before it is started."""

from __future__ import annotations

from pathlib import Path

from pytube.config import load
from pytube.worker import Worker

CONFIG = """
[postgres]
dsn = "postgresql://nobody@127.0.0.1:1/none"
[worker]
client_id = "the name of both"
[tube.t.sink]
type = "jsonl"
path = "sink.jsonl"
"""


async def test_two_workers_of_one_name_are_two_instances(tmp_path: Path) -> None:
    """All that the database and the election tell them apart by is theirs alone."""
    path = tmp_path / "pytube.toml"
    path.write_text(CONFIG)
    candidates = [Worker(load(path))._tubes["t"].candidate for _ in range(2)]
    assert candidates[0].client_id == candidates[1].client_id == "the name of both"
    assert candidates[0].instance_id != candidates[1].instance_id
