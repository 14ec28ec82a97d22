"""A standby is promoted that lost commits of outboxes: who reads their messages is told, and misses none."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytube.embedded.kafka_real import RealKafka
from pytube.outbox.consumer import Deduplicator
from tests.crash.outbox_judge import MODES
from tests.crash.outboxes import Outboxes
from tests.crash.pair import Pair
from tests.helpers import cli
from tests.helpers.outbox import Seen

LOST = 100
"""Records that are lost: more than the 32 ids that a standby has in advance."""
ROUNDS = 12
"""Of 10 new records for each outbox in turn: enough to get all of their ids again."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


@pytest.fixture
def outboxes(pair: Pair, tmp_path: Path, kafka_real: RealKafka) -> Iterator[Outboxes]:
    with Outboxes(pair.dsn, tmp_path, kafka_real.bootstrap, partitions=1) as outboxes:
        outboxes.start(1)
        outboxes.start(2)
        with outboxes.connect() as connection:
            for mode in MODES:
                outboxes.stash(connection, mode, ["before"] * 20)
        outboxes.wait_until_drained()
        yield outboxes


class Message:
    """What was read, as a consumer sees it."""

    def __init__(self, seen: Seen, topic: str) -> None:
        self._seen, self._topic = seen, topic

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._seen.partition

    def key(self) -> bytes | None:
        return None if self._seen.key is None else self._seen.key.encode()

    def headers(self) -> list[tuple[str, bytes | str | None]]:
        return [(name, value.encode()) for name, value in self._seen.headers.items()]


def run(outboxes: Outboxes, *arguments: str) -> tuple[int, str]:
    """A command as an operator runs it; its exit code, and what it printed."""
    process = cli.start(*arguments, config=outboxes.config, CLIENT_ID="operator", KAFKA="127.0.0.1:1")
    out, err = process.communicate(timeout=60)
    return process.returncode, out + err


def unverified(outboxes: Outboxes, mode: str) -> list[dict[str, Any]]:
    """What `outbox status --json` tells of an outbox."""
    code, out = run(outboxes, "outbox", "status", mode, "--json")
    return [] if code else json.loads(out)[0]["unverified"]


def lose(pair: Pair, outboxes: Outboxes, *, held: bool = False) -> dict[str, list[int]]:
    """Records that are delivered, and then lost with the primary; their ids.

    Args:
        pair: of servers; the standby is promoted.
        outboxes: of the primary.
        held: no worker sees the next primary before it is sent SIGCONT.
    """
    pair.standby.wait_until_caught_up()
    pair.standby.cut_off()
    with outboxes.connect() as connection:
        lost = {mode: outboxes.stash(connection, mode, ["key"] * LOST) for mode in MODES}
    outboxes.wait_until_drained()
    if held:
        outboxes.signal_all(signal.SIGSTOP)
    pair.primary.kill()
    pair.standby.promote()
    return lost


def stash_new(pair: Pair, outboxes: Outboxes) -> dict[str, list[int]]:
    """Records of the next primary; their ids."""
    new: dict[str, list[int]] = {mode: [] for mode in MODES}
    with psycopg.connect(
        pair.dsn_of_standby, autocommit=True, options="-c search_path=tube,public"
    ) as connection:
        for mode in MODES * ROUNDS:
            new[mode] += outboxes.stash(connection, mode, ["key"] * 10)
    return new


def test_writers_that_are_quicker_than_workers_draw_ids_again_and_nobody_misses_a_message(
    pair: Pair, outboxes: Outboxes
) -> None:
    lost = lose(pair, outboxes, held=True)
    new = stash_new(pair, outboxes)
    outboxes.signal_all(signal.SIGCONT)
    for mode in MODES:
        assert set(new[mode]) & set(lost[mode]), "ids are drawn again"
    outboxes.wait_until_drained()
    for mode in MODES:
        check_what_arrived(outboxes, mode, lost[mode], new[mode])
        found = unverified(outboxes, mode)
        assert [one["cause"] for one in found] == ["source"]
        assert "timeline 2, before 1; the last commit that it has is of " in found[0]["detail"]
    outboxes.terminate()


def test_lost_commits_are_told_and_their_ids_not_drawn_again(pair: Pair, outboxes: Outboxes) -> None:
    lost = lose(pair, outboxes)
    for mode in MODES:
        outboxes.wait_until(
            lambda: any(one["is_certain"] for one in unverified(outboxes, mode)),  # noqa: B023 # called at once
            f"status tells of {mode}",
        )
    check_what_is_told(outboxes)
    new = stash_new(pair, outboxes)
    outboxes.wait_until_drained()
    assert min(map(min, new.values())) > max(map(max, lost.values()))
    for mode in MODES:
        check_what_arrived(outboxes, mode, lost[mode], new[mode])
    outboxes.terminate()


def check_what_is_told(outboxes: Outboxes) -> None:
    """In all commands that look; the remedy helps."""
    code, said = run(outboxes, "doctor")
    assert code == 1
    assert "fail messages of strict: the source lost commits (" in said
    assert "-> inform the consumers" in said
    for command in (["status"], ["outbox", "status", "strict"]):
        code, said = run(outboxes, *command)
        assert "strict: the source lost commits (" in said
        assert "timeline 2, before 1" in said
        assert "the last commit that it has is of " in said
        assert "then: pytube outbox acknowledge strict" in said
    assert 'pytube_fleet_source_changed{tube="strict"} 2.0' in run(outboxes, "status", "--prometheus")[1]
    assert run(outboxes, "outbox", "acknowledge", "strict") == (0, "strict is no longer reported\n")
    assert unverified(outboxes, "strict") == []
    assert run(outboxes, "outbox", "acknowledge", "strict") == (0, "nothing was reported of strict\n")
    assert unverified(outboxes, "windowed") != []
    audit = json.loads(run(outboxes, "audit", "--tube", "strict", "--json")[1])
    assert audit[0]["action"] == "acknowledge"


def check_what_arrived(outboxes: Outboxes, mode: str, lost: list[int], new: list[int]) -> None:
    """Each new record, also where its id was another one's, and a `Deduplicator` drops none."""
    for deduplicator in (Deduplicator(), Deduplicator(by="key", size=1000), newest_only()):
        ids: list[int] = []
        for seen in outboxes.read(mode):
            message = Message(seen, outboxes.topics[mode])
            if seen.key == "key" and not deduplicator.is_repeat(message):
                ids.append(seen.id)
                deduplicator.remember(message)
        assert sorted(ids) == sorted(lost + new), f"of {mode} are missing {set(new) - set(ids)}"


def newest_only() -> Deduplicator:
    return Deduplicator(by="key", compacted=True)
