"""The monkey of the long run: which faults strike, when, and that each is seen to its end."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from tests.crash.chaos.course import FAULTS
from tests.crash.chaos.monkey import Course, Fault, Monkey, NotNow, Scene
from tests.helpers.waiting import wait_until


def monkey(tmp_path: Path, *faults: Fault) -> Monkey:
    scene = Scene(cast("Any", None), cast("Any", None), random.Random(0))
    return Monkey(scene, list(faults), tmp_path / "faults.jsonl")


def struck(chosen: Monkey) -> None:
    """Let it strike at once."""
    chosen._next = 0.0
    chosen.step()


def test_a_fault_is_seen_to_its_end(tmp_path: Path) -> None:
    steps = []

    def fault(scene: Scene) -> Course:
        with scene.alone("it"):
            scene.tell("begins")
            yield 0.01
            steps.append("ends")

    chosen = monkey(tmp_path, Fault("a fault", 1, fault))
    struck(chosen)
    assert not chosen.is_calm
    struck(chosen)  # the same target: nothing comes of it
    assert chosen.counts == {"a fault": 1}

    def calm() -> bool:
        chosen.go_on()
        return chosen.is_calm

    wait_until(calm)
    assert steps == ["ends"]
    (record,) = map(json.loads, (tmp_path / "faults.jsonl").read_text().splitlines())
    assert record["fault"] == "a fault"
    assert record["what"] == "begins"


def test_a_fault_that_finds_the_server_down_does_not_count(tmp_path: Path) -> None:
    def fault(_: Scene) -> Course:
        psycopg.connect("host=/nonexistent")
        yield 0.0

    chosen = monkey(tmp_path, Fault("a fault", 1, fault))
    struck(chosen)
    assert chosen.is_calm
    assert not chosen.counts


def strikes(_: Scene) -> Course:
    yield 0.0


def test_every_fault_strikes_within_a_round(tmp_path: Path) -> None:
    """Each as often as its weight says, whatever the seed."""
    weights = {"common": 4, "usual": 1, "rare": 0.5}
    chosen = monkey(tmp_path, *(Fault(name, weight, strikes) for name, weight in weights.items()))
    assert chosen.missing == list(weights)
    for round_ in (1, 2):
        for _ in range(11):
            struck(chosen)
        assert chosen.counts == {"common": 8 * round_, "usual": 2 * round_, "rare": round_}
    assert chosen.missing == []


def test_a_fault_that_came_to_nothing_comes_again(tmp_path: Path) -> None:
    tries = 0

    def at_the_third(scene: Scene) -> Course:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise NotNow
        yield from strikes(scene)

    chosen = monkey(tmp_path, Fault("easy", 1, strikes), Fault("hard", 0.5, at_the_third))
    for _ in range(3):
        struck(chosen)
    assert chosen.missing == ["hard"]
    for _ in range(4):  # the next round has it twice
        struck(chosen)
    assert chosen.counts == {"easy": 4, "hard": 1}


def test_what_is_over_at_once_did_not_strike(tmp_path: Path) -> None:
    chosen = monkey(tmp_path, Fault("nothing", 1, lambda _: iter(())))
    struck(chosen)
    assert chosen.is_calm
    assert chosen.missing == ["nothing"]


def test_in_the_end_those_that_are_missing_come_first(tmp_path: Path) -> None:
    ready = False

    def rare(scene: Scene) -> Course:
        if not ready:
            raise NotNow
        yield from strikes(scene)

    chosen = monkey(tmp_path, Fault("common", 4, strikes), Fault("rare", 0.5, rare))
    for _ in range(9):
        struck(chosen)
    chosen.insist()
    for _ in range(3):
        struck(chosen)
    ready = True
    struck(chosen)
    assert chosen.counts == {"common": 8, "rare": 1}
    struck(chosen)
    assert chosen.counts.total() == 10, "then all come again"


def test_all_faults_come_in_a_round() -> None:
    """A weight that is no multiple of 0.5 would be rounded, maybe to nothing."""
    assert all(fault.weight > 0 and 2 * fault.weight % 1 == 0 for fault in FAULTS)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_targets_are_let_go() -> None:
    scene = Scene(cast("Any", None), cast("Any", None), random.Random(0))
    with scene.alone("one", "two"), pytest.raises(NotNow), scene.alone("two"):
        pass
    with scene.alone("two"):
        pass
