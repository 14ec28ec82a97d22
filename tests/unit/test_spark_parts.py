"""What Spark's side decides without Spark: hosts, shard maps, ranges, fingerprints."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest

from pytube.errors import ConfigError, UsageError
from pytube.spark.frame import normal_plan
from pytube.spark.hosts import Host, shard_map
from pytube.spark.ranges import within
from pytube.spark.source import even_edges, host_of
from pytube.spark.touch import Plan

SECRET = "s3cret-word"
DSN = f"postgresql://me:{SECRET}@db.example:6543/shop"


# --- hosts ----------------------------------------------------------------------------------------


def test_no_text_of_a_host_holds_the_password() -> None:
    host = Host(DSN)
    plan = Plan(shard_map(host), "job", ("t",), "T", 4, 250)
    texts = [
        repr(host),
        str(host),
        host.name,
        repr(plan),
        repr(shard_map(DSN)),
        host.redacted(f"bad {SECRET}"),
    ]
    assert not [text for text in texts if SECRET in text]
    assert host.name == "db.example:6543/shop"
    assert pickle.loads(pickle.dumps(host)).resolved() == DSN  # noqa: S301


def test_a_variable_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host("env:SHOP_DSN")
    assert host.name == "$SHOP_DSN"
    assert not host.has_password()
    with pytest.raises(ConfigError, match=r"spark\.executorEnv\.SHOP_DSN"):
        host.resolved()
    monkeypatch.setenv("SHOP_DSN", DSN)
    assert host.resolved() == DSN
    assert host.redacted(f"bad {SECRET}") == "bad ********"


def test_what_is_no_connection_string_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as raised:
        Host(f"postgresql://me:{SECRET}@[db/x")
    assert SECRET not in str(raised.value)


def test_an_option_holds_no_password() -> None:
    with pytest.raises(UsageError, match="must not hold a password") as raised:
        host_of({"dsn": DSN}, {})
    assert SECRET not in str(raised.value)
    assert host_of({"dsn": "service=shop"}, {}).name == "service shop"
    assert host_of({"host": "a"}, {"a": Host(DSN)}).resolved() == DSN
    with pytest.raises(UsageError, match="no database 'b' is registered"):
        host_of({"host": "b"}, {"a": Host(DSN)})


def test_a_map_of_shards() -> None:
    hosts = shard_map({(10, 19): "host=b", (0, 9): "host=a", (30, 39): "host=a"})
    assert [host.name for host in hosts.hosts] == ["a:5432/", "b:5432/"]
    assert [(low, high, hosts.hosts.index(host)) for low, high, host in hosts.ranges] == [
        (0, 9, 0),
        (10, 19, 1),
        (30, 39, 0),
    ]
    assert shard_map([(0, 9, "host=a")]).ranges[0][:2] == (0, 9)
    for wrong in ({(0, 9): "host=a", (9, 12): "host=b"}, {(9, 0): "host=a"}, {}):
        with pytest.raises(UsageError, match="overlap|empty"):
            shard_map(wrong)


# --- ranges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high", "ranges"), [(1, 100, 7), (5, 5, 3), (-10, 2, 40), (0, 2**62, 3)])
def test_even_edges(low: int, high: int, ranges: int) -> None:
    bounds = even_edges(low, high, ranges)
    edges = [low, *bounds, high + 1]
    assert edges == sorted(set(edges))
    assert len(bounds) == min(ranges, high - low + 1) - 1
    widths = [b - a for a, b in pairwise(edges)]
    assert max(widths) - min(widths) <= 1


def test_a_range_of_a_query() -> None:
    text = within("SELECT id FROM t", ["10", "20"], 0)
    assert text.endswith("WHERE q.id < '10' OR q.id IS NULL")
    assert within("SELECT id FROM t", ["10", "20"], 1).endswith("WHERE q.id >= '10' AND q.id < '20'")
    assert within("SELECT id FROM t", ["10", "it's"], 2).endswith("WHERE q.id >= 'it''s'")
    assert within("SELECT id FROM t", [], 0).endswith("WHERE true OR q.id IS NULL")


# --- fingerprints ---------------------------------------------------------------------------------

PLAN = """Project [id#1L, 3 AS shard#8]
+- Filter (id#1L > cast(3 as bigint))
   +- Range (0, 10, step=1, splits=Some(7))
"""
MOVED = """Project [id#41L, 3 AS shard#48]
+- Repartition 5, true
   +- Filter (id#41L > cast(3 as bigint))
      +- RepartitionByExpression [id#41L], 9
         +- Range (0, 10, step=1, splits=Some(2))
"""


def test_a_plan_without_what_only_moves_rows() -> None:
    assert normal_plan(PLAN) == normal_plan(MOVED)
    assert normal_plan(PLAN) != normal_plan(PLAN.replace("3 as", "4 as"))
