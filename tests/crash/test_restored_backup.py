"""A database restored from an older dump under a sink that is newer."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import psycopg
from psycopg import sql

from pytube.embedded.postgres import Postgres
from tests.crash.conftest import MakeFleet
from tests.crash.fleet import Fleet
from tests.crash.load import KEYS, Load
from tests.helpers import cli

AHEAD = 100_000
"""Seconds by which the epochs before the restore are ahead of the clock: it had been set wrong."""
AHEAD_ROOM = 1000
"""Epochs that a rebase leaves out."""
NEW = 500
"""Rows that were made after the backup: the restored source knows nothing of them."""

TOUCH_ALL = "SELECT public.items_touch(ARRAY(SELECT id FROM public.items))"
TOUCH_LOST = (
    "SELECT public.items_touch(ARRAY(SELECT generate_series("
    "(SELECT max(id) FROM public.items) + 1, {last}::bigint)))"
)


def dump(fleet: Fleet, postgres: Postgres, file: Path) -> None:
    """Take a backup."""
    subprocess.run([postgres.bin("pg_dump"), "-Fc", "-f", file, fleet.dsn], check=True)


def restore(fleet: Fleet, postgres: Postgres, file: Path) -> None:
    """Put the backup into the place of the database, at once: nobody meets a half restored one."""
    parts = psycopg.conninfo.conninfo_to_dict(fleet.dsn)
    name, fresh = sql.Identifier(str(parts["dbname"])), sql.Identifier("restored")
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(fresh))
        target = psycopg.conninfo.make_conninfo(fleet.dsn, dbname="restored")
        subprocess.run([postgres.bin("pg_restore"), "--exit-on-error", "-d", target, file], check=True)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        admin.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(fresh, name))


def live_on(fleet: Fleet) -> None:
    """What happens after the backup: changes of all kinds, and rows of which it knows nothing."""
    with Load(fleet.dsn):
        before = fleet.sink_lines()
        fleet.wait_until(lambda: fleet.sink_lines() > before + 100, "documents arrive")
    fleet.change(
        f"INSERT INTO public.items SELECT g, 0, 'new' FROM generate_series({KEYS + 1}, {KEYS + NEW}) g"
    )
    fleet.change("DELETE FROM public.items WHERE id % 7 = 0")
    fleet.wait_until_drained()


def make_right(fleet: Fleet) -> None:
    """As the docs tell: touch the rows that are there, and the ids that were given out since."""
    fleet.change(TOUCH_ALL)
    fleet.change(TOUCH_LOST.format(last=KEYS + NEW))
    fleet.wait_until_drained()
    assert fleet.terminate() == [0] * len(fleet.processes)
    verdict = fleet.judge()
    assert verdict.is_good, verdict


def test_epochs_are_above_those_before_the_restore(
    make_fleet: MakeFleet, postgres: Postgres, tmp_path: Path
) -> None:
    fleet = make_fleet(comparing=True)
    dump(fleet, postgres, tmp_path / "backup")
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    live_on(fleet)
    last = fleet.query("SELECT last_epoch FROM tube_registry")[0][0]
    # Terms that follow each other within a second run ahead of the clock; a restore takes longer.
    fleet.wait_until(lambda: time.time() > last + 1, "the clock has passed the last epoch")
    restore(fleet, postgres, tmp_path / "backup")
    fleet.wait_for_leaders({1, 2})
    assert fleet.query(f"SELECT min(epoch) > {last} FROM tube_leaders('items')") == [(True,)]
    make_right(fleet)
    for number in (1, 2):
        assert "tube rebase" not in fleet.log(number), "nothing was ahead: epochs are at least unix seconds"


def test_a_sink_that_is_ahead_stops_the_worker_until_the_rebase(
    make_fleet: MakeFleet, postgres: Postgres, tmp_path: Path
) -> None:
    fleet = make_fleet(comparing=True)
    dump(fleet, postgres, tmp_path / "backup")
    ahead = int(time.time()) + AHEAD
    run_cli(fleet, "tube", "rebase", "items", "--epoch", str(ahead))
    fleet.start(1, 2)
    fleet.wait_for_leaders({1, 2})
    live_on(fleet)
    restore(fleet, postgres, tmp_path / "backup")
    fleet.wait_until(
        lambda: fleet.query("SELECT count(*) FROM tube_leaders('items') WHERE epoch IS NOT NULL") == [(4,)],
        "terms begin over the restored database",
    )
    fleet.change(TOUCH_ALL)
    fleet.wait_until(lambda: commands(fleet), "a worker says what to run")
    lines = fleet.sink_lines()
    epoch = min(commands(fleet))
    assert ahead < epoch
    run_cli(fleet, "tube", "rebase", "items", "--epoch", str(epoch))
    # once is enough for all partitions, whichever of them it was that spoke
    fleet.wait_until_drained()
    assert fleet.sink_lines() > lines
    assert fleet.query("SELECT min(epoch) FROM tube_leaders('items')")[0][0] > epoch + AHEAD_ROOM
    make_right(fleet)


def commands(fleet: Fleet) -> set[int]:
    """The epochs of the commands that the workers named."""
    said = "".join(map(fleet.log, fleet.processes))
    return {int(epoch) for epoch in re.findall(r"`pytube tube rebase items --epoch (\d+)`", said)}


def run_cli(fleet: Fleet, *arguments: str) -> None:
    """A command of the program, as the operator runs it."""
    process = cli.start(*arguments, config=fleet.config, CLIENT_ID="operator", DSN=fleet.dsn)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, out + err
