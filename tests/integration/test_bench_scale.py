"""The simulations of large installations, small: what they measure is so, and nothing in them is stuck."""

from __future__ import annotations

import pytest

from bench import scale
from bench.frame.server import Server
from pytube.embedded.postgres import Postgres

SMALL = scale.Size(
    partitions=24,
    hosts=2,
    tubes=3,
    tube_partitions=4,
    processes=2,
    fleet=8,
    fleet_partitions=32,
    fleet_tubes=4,
    die=3,
    seconds=1.0,
    settle=0.0,
    session_timeout=3.0,
)


@pytest.mark.parametrize(("part", "shares"), [(scale.one_tube, [12, 12]), (scale.hosts, [12, 12])])
def test_processes_share_all_and_take_it_over(
    postgres: Postgres, part: scale.Part, shares: list[int]
) -> None:
    found = part(Server(postgres), SMALL)
    assert sorted(found.shares) == shares
    assert 0 < found.sessions <= found.most_sessions
    assert found.works_again >= found.taken_over > 0.5 * SMALL.session_timeout
    assert found.server_cpu > 0
    assert len(found.own_cpu) == 2
    assert min(*found.start_cpu, *found.take_over_cpu) >= 0
    assert len(found.rows()) == 11


def test_a_fleet_divides_each_tube_fairly(postgres: Postgres) -> None:
    for tubes, found in scale.elections(Server(postgres), SMALL):
        assert sum(found.shares) == sum(found.shares_after) == 32
        assert len(found.shares_after) == 5
        if tubes == 1:
            assert set(found.shares) == {4}
            assert set(found.shares_after) == {6, 7}
        # Ticks come twice a second, renewals five times in a third of the session timeout; fewer if others
        # have the machine.
        assert found.rates["tube_lease_ticks"] > 3
        assert found.rates["tube_leaders_renew"] > 3
        assert found.tick_cpu > 0
        assert found.taken_over > 0.5 * SMALL.session_timeout
