"""Names of leader topics."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.config.names import LONGEST, checked_name, leader_name
from pytube.errors import ConfigError

ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)


def test_plain_names_stay_as_they_are() -> None:
    assert leader_name("default", "es-live") == "pytube.default.es-live"
    assert leader_name("a.b", "orders_v2") == "pytube.a_2eb.orders__v2"


@given(ANY, ANY)
def test_kafka_takes_every_name(installation: str, tube: str) -> None:
    name = leader_name(installation, tube)
    assert re.fullmatch(rf"[A-Za-z0-9._-]{{1,{LONGEST}}}", name)


@given(st.tuples(ANY, ANY), st.tuples(ANY, ANY))
def test_two_tubes_never_share_a_name(one: tuple[str, str], two: tuple[str, str]) -> None:
    assert (leader_name(*one) == leader_name(*two)) == (one == two)


def test_long_names_differ_by_their_hash() -> None:
    assert leader_name("i", "x" * 300) != leader_name("i", "x" * 301)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250])
def test_a_configured_name_that_kafka_refuses(name: str) -> None:
    with pytest.raises(ConfigError, match="leader topic"):
        checked_name(name, "leader topic")
