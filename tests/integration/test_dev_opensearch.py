"""`pytube dev opensearch`."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path

import pytest

from pytube.demo.dev import describe
from pytube.embedded.search_server import OpenSearch
from tests.helpers.cli import run, start
from tests.helpers.waiting import LIMIT


def test_what_it_says_of_opensearch_is_a_sink_that_works(real_opensearch: OpenSearch, tmp_path: Path) -> None:
    offer = describe(real_opensearch)
    assert offer.address == real_opensearch.url
    assert offer.commands == (f"curl {real_opensearch.url}/_cat/indices",)
    (tmp_path / "pytube.toml").write_text(f'{offer.settings}\n[postgres]\ndsn = "host=/nowhere"\n')
    run("sink", "check", "orders", folder=tmp_path)


@pytest.mark.soak
def test_opensearch_runs_until_it_is_interrupted() -> None:
    with start("dev", "opensearch", "--json", config=None) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        with urllib.request.urlopen(said["address"], timeout=LIMIT) as answer:  # noqa: S310 # ours
            assert json.load(answer)["version"]["distribution"] == "opensearch"
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
