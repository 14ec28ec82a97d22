"""Fault points: what a test may ask for, and when it happens."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytube.faults import Point, fault
from tests.helpers.armed import FILE_VARIABLE, VARIABLE, Action, InjectedFault, arm
from tests.helpers.database import ROOT
from tests.unit.rig import Rig


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm({})


async def test_without_a_variable_nothing_happens() -> None:
    arm({})
    for point in Point:
        await fault(point)


async def test_only_the_pass_that_was_asked_for_acts() -> None:
    arm({VARIABLE: "after_mark:raise:2"})
    await fault(Point.AFTER_MARK)
    await fault(Point.BEFORE_SEND)
    with pytest.raises(InjectedFault, match="after_mark"):
        await fault(Point.AFTER_MARK)
    await fault(Point.AFTER_MARK)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere:kill", "'nowhere' is not a valid Point"),
        ("after_mark", "'' is not a valid Action"),
        ("after_mark:sing", "before_send"),
        ("after_mark:kill:x", "invalid literal"),
        ("after_mark:kill:0", "1 or more"),
        ("after_mark:wait", FILE_VARIABLE),
    ],
)
def test_what_cannot_be_asked_for(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        arm({VARIABLE: text})


async def test_a_wait_lasts_until_the_file_is_there(tmp_path: Path) -> None:
    file = tmp_path / "go"
    arm({VARIABLE: "before_send:wait", FILE_VARIABLE: str(file)})
    waiting = asyncio.create_task(fault(Point.BEFORE_SEND))
    await asyncio.sleep(0)
    assert not waiting.done()
    file.touch()
    await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize(("action", "number"), [(Action.KILL, signal.SIGKILL), (Action.STOP, signal.SIGSTOP)])
def test_the_process_is_killed_or_stopped(action: Action, number: signal.Signals) -> None:
    code = (
        "import asyncio, os; from pytube.faults import Point, fault; from tests.helpers.armed import arm; "
        "arm(os.environ); asyncio.run(fault(Point.AFTER_SEND))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: f"after_send:{action}"}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if action is Action.STOP:
            assert os.WSTOPSIG(status) == number
            process.kill()
        else:
            assert os.WTERMSIG(status) == number


@pytest.mark.parametrize(
    "point",
    [Point.AFTER_MARK, Point.BEFORE_ENRICH, Point.BEFORE_SEND, Point.AFTER_SEND, Point.BEFORE_PURGE],
)
async def test_a_fault_that_is_raised_ends_the_worker_and_purges_nothing(point: Point) -> None:
    rig = Rig()
    rig.insert(1)
    arm({VARIABLE: f"{point}:raise"})
    async with rig.running():
        assert isinstance(await rig.until_it_ends(), InjectedFault)
    assert not rig.tube.purged
