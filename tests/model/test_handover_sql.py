"""The SQL does what the model says, step by step, on ways through the model that are drawn."""

from __future__ import annotations

import random
from contextlib import suppress
from uuid import UUID

import psycopg
import pytest

from tests.helpers.terms import (
    Claim,
    Conn,
    Term,
    acquire,
    make_tube,
    marked_seqs,
    pods,
    purge,
    release,
    renew,
    reset,
    scalar,
    touch,
)
from tests.model.handover import HOLD, KEY, Model, State, Worker

TICK = 1000
"""Seconds: longer than a way takes."""


class Database:
    """The tube of one way, in the terms of the model."""

    def __init__(self, conn: Conn) -> None:
        self._conn = conn
        self._terms: dict[int, Term] = {}
        """By the model's epoch."""
        self._seqs: list[int] = []
        self._tube = "way"
        make_tube(conn, self._tube)

    def do(self, step: str, before: State, after: State) -> None:
        """Do what a step of the model does to the database."""
        who, _, name = step.rpartition(" ") if step.startswith("w") else ("", "", step)
        if not who.startswith("w") or not who[1:2].isdigit():
            self._do_alone(step, after)
            return
        number = int(who[1])
        name = step.removeprefix(f"w{number} ")
        worker = before.workers[number]
        match name:
            case "acquire":
                partition = KEY % before.partitions
                hold = f"{HOLD * TICK} seconds"
                claim = Claim(self._tube, before.partitions, partition, hold=hold)
                self._terms[after.leader] = acquire(self._conn, claim)
            case "is renewed":
                renew(self._conn, self._terms[worker.epoch])
            case "ask":
                left = scalar(
                    self._conn,
                    "SELECT extract(epoch FROM tube_leader_wait(%s, %s, %s, %s))",
                    self._terms[worker.epoch].args,
                )
                assert round(float(left) / TICK) == after.workers[number].waits
            case "mark" | "mark, and the answer is lost":
                new = [
                    seq
                    for seq, (_, by) in zip(self._left(before), before.pods, strict=True)
                    if by != worker.epoch
                ]
                assert marked_seqs(self._conn, self._terms[worker.epoch]) == new
            case "purge":
                done = [self._seqs[version - 1] for version, _ in before.pods if version <= worker.done]
                assert purge(self._conn, self._terms[worker.epoch], done) == len(done)
            case "release":
                reset(self._conn, self._terms[worker.epoch])
                assert release(self._conn, self._terms[worker.epoch])

    def _do_alone(self, step: str, after: State) -> None:
        match step:
            case "change":
                self._seqs.append(touch(self._conn, KEY, tube=self._tube))
            case "repartition":
                make_tube(self._conn, self._tube, after.partitions)
            case "tick":
                for table in ("tube_leader", "tube_term"):
                    self._conn.execute(
                        f"UPDATE {table} SET renewed_at = renewed_at - make_interval(secs => {TICK})"
                    )

    def compare(self, state: State, model: Model) -> None:
        """The pods and their marks are the model's, and so is who may act."""
        leaders: dict[UUID | None, int] = {term.leader_id: epoch for epoch, term in self._terms.items()}
        found = [leaders.get(leader, 0) for leader in pods(self._conn, self._tube).values()]
        assert found == [by for _, by in state.pods]
        for worker in state.workers:
            if worker.epoch:
                assert self._may_act(worker) == model.is_current(state, worker), state
        epochs = [self._terms[epoch].epoch for epoch in sorted(self._terms)]
        assert epochs == sorted(set(epochs))

    def _may_act(self, worker: Worker) -> bool:
        with suppress(psycopg.DatabaseError):
            self._conn.execute("SELECT tube_leader_wait(%s, %s, %s, %s)", self._terms[worker.epoch].args)
            return True
        return False

    def _left(self, state: State) -> list[int]:
        return [self._seqs[version - 1] for version, _ in state.pods]


RARE = {"tick": 8, "change": 8, "acquire": 4, "release": 6, "renew": 3, "repartition": 30}
"""Of so many times that a step is possible, it may be chosen once; else the rest would hardly occur."""


@pytest.mark.parametrize("seed", range(20))
def test_the_sql_takes_the_same_steps(conn: Conn, seed: int) -> None:
    model = Model(versions=20, epochs=20, reads=9, renewals=True, repartitions=True)
    chance = random.Random(seed)
    state = model.first()
    database = Database(conn)
    way: list[str] = []
    for _ in range(60):
        steps = list(model.successors(state))
        likely = [one for one in steps if not chance.randrange(RARE.get(one.name.split()[-1], 1))]
        step = chance.choice(likely or steps)
        way.append(step.name)
        try:
            database.do(step.name, state, step.state)
            database.compare(step.state, model)
        except (AssertionError, psycopg.DatabaseError) as error:
            raise AssertionError(f"{'; '.join(way)}: {error}") from error
        state = step.state
