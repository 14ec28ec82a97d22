"""What the benchmarks compare a worker with does what a worker has to do."""

from __future__ import annotations

from bench.frame import by_hand
from bench.frame.server import connect
from bench.frame.tubes import fill


def test_pods_are_read_and_deleted_on_every_version(any_dsn: str) -> None:
    with connect(any_dsn) as admin, by_hand.session(any_dsn) as session:
        admin.execute("SELECT tube_ensure_exists('t')")
        for ids in (1, 200):
            fill(admin, "t", 1500, ids)
            assert by_hand.read_and_delete(session, "t", 1500 * ids) == 1500 * ids
            assert admin.execute("SELECT count(*) FROM tube.t").fetchone() == (0,)


def test_each_row_makes_a_round_trip_also_when_ids_come_again(dsn: str) -> None:
    with by_hand.RoundTrip(dsn, rows=5) as trip:
        first, second = trip.probe(0.0, 4), trip.probe(0.0, 4)
    assert len(first) == len(second) == 4
    assert min(first + second) > 0.0
