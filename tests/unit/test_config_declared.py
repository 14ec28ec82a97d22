"""What a file declares of tubes and outboxes: what it may say, and how a wrong one is told."""

from __future__ import annotations

import pytest

from pytube.config import Config, parse
from pytube.config.loader import masked
from pytube.config.tubes import attachments
from pytube.errors import ConfigError
from pytube.worker.reload import Changes

_START = '[postgres]\ndsn = "dbname=x"\n[kafka]\nbootstrap_servers = "x:1"\n'
_SINK = '[tube.stock.sink]\ntype = "jsonl"\n'
_TABLE = '[tube.stock.tables."{}"]\n'


def with_sink(text: str) -> Config:
    return parse(_START + text + "\n" + _SINK)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        with_sink(text)
    return str(caught.value).removeprefix("pytube.toml: ")


def test_what_declares_something() -> None:
    config = with_sink(
        '[outbox.a]\nmode = "strict"\n[outbox.b]\npartitions = 1\n[outbox.c]\nadopt = "a.b"\nwake = true\n'
    )
    assert config.tubes["stock"].declared == ()
    assert [one.declared for one in config.outboxes.values()] == [(), ("partitions",), ("adopt", "wake")]
    tube = with_sink("[tube.stock]\npartitions = 1\n" + _TABLE.format("a.b")).tubes["stock"]
    assert tube.declared == ("partitions", "tables")


def test_what_a_section_of_a_table_leaves_out() -> None:
    tables = with_sink(
        _TABLE.format("shop.Orders")
        + "shards = 4\n"
        + _TABLE.format("shop.items")
        + 'key = "order_id"\ncolumns = ["b", "a", "b"]\n'
        + "[tube.stock.tables.'shop_17.\"Notes\"']\n"
        + "replica = true\n"
    ).tubes["stock"]
    assert [
        (one.table.table, one.key, one.shard, one.shards, sorted(one.columns), one.replica, one.root)
        for one in attachments(tables.tables)
    ] == [
        ("orders", (), 0, 4, [], False, True),
        ("items", ("order_id",), 0, 4, ["a", "b"], False, False),
        ("Notes", (), 17, 1, [], True, True),
    ]


def test_keys_of_several_columns() -> None:
    """What is related to a table is spread as that is, by its own column."""
    tables = with_sink(
        _TABLE.format("a.b")
        + 'key = ["tenant", "id"]\nshard_by = "tenant"\nshards = 4\n'
        + _TABLE.format("a.c")
        + 'key = ["of_tenant", "b_id"]\n'
        + _TABLE.format("a.d")
        + 'key = "id"\n'
        + _TABLE.format("a_9.e")
        + 'key = ["x", "y", "z"]\n'
    ).tubes["stock"]
    assert [(one.key, one.shard_by) for one in attachments(tables.tables)] == [
        (("tenant", "id"), "tenant"),
        (("of_tenant", "b_id"), "of_tenant"),
        (("id",), None),
        (("x", "y", "z"), None),
    ]
    assert masked(with_sink(_TABLE.format("a.b") + 'key = ["x", "y"]\n'))["tube"]["stock"]["tables"] == {
        "a.b": {"key": ["x", "y"], "replica": False}
    }


REFUSED = {
    "no table": (_TABLE.format("orders"), "does not name a table; expected schema.table"),
    "one table twice": (
        _TABLE.format("a.b") + _TABLE.format("A.B"),
        "key tube.stock: two sections are for a.b; take one of them out",
    ),
    "no key": (
        _TABLE.format("a.b") + _TABLE.format("a.c"),
        "a.c has the shard 0 of a.b; name the column that holds ids of a.b in key, or give it a separate",
    ),
    "a key of one column as a list": (
        _TABLE.format("a.b") + 'key = ["id"]\n',
        'key tube.stock.tables."a.b".key: expected the name of a column, or a list of 2 to 8 columns, not 1',
    ),
    "a key of nine columns": (
        _TABLE.format("a.b") + f"key = {list('abcdefghi')}\n",
        'key tube.stock.tables."a.b".key: expected the name of a column, or a list of 2 to 8 columns, not 9',
    ),
    "a column twice": (
        _TABLE.format("a.b") + 'key = ["a", "a"]\n',
        'key tube.stock.tables."a.b".key: a column stands twice in it',
    ),
    "a key that is no name": (
        _TABLE.format("a.b") + "key = 7\n",
        'key tube.stock.tables."a.b".key: expected the name of a column, or a list',
    ),
    "shard_by of another column": (
        _TABLE.format("a.b") + 'key = ["a", "b"]\nshard_by = "c"\n',
        'key tube.stock.tables."a.b": shard_by is c, which the key does not have, so an id',
    ),
    "shard_by of one column": (
        _TABLE.format("a.b") + 'key = "a"\nshard_by = "a"\n',
        'key tube.stock.tables."a.b": shard_by chooses one column of a key of several; name them',
    ),
    "shards in part": (
        _TABLE.format("a.b") + "shards = 4\n" + _TABLE.format("a.c") + "shard = 2\n",
        "a.c has shard 2, overlapping shards 0 to 3 of a.b; give it the same shards",
    ),
    "too many shards": (
        _TABLE.format("a.b") + "shard = 2147483647\nshards = 2\n",
        "the shards of a.b are more than there are",
    ),
    "an unknown key": (
        _TABLE.format("a.b") + "kee = 1\n",
        'key tube.stock.tables."a.b".kee: is unknown; did you mean key?',
    ),
    "too many partitions": ("[tube.stock]\npartitions = 2000\n", "key tube.stock.partitions: expected"),
    "another type": ('[tube.stock]\nkey_type = "int"\n', "key tube.stock.key_type: expected"),
    "wake alone": ("[outbox.a]\nwake = true\n", "key outbox.a: wake is only for adopted tables"),
    "values of an adopted table": (
        '[outbox.a]\nadopt = "a.b"\nvalue_type = "text"\n',
        "key outbox.a: value_type can't stand beside adopt",
    ),
    "beside a document": (
        '[tube.stock]\npartitions = 2\n[document.stock]\ntable = "a.b"\nfields = ["*"]\n',
        "key tube.stock.partitions: stands beside [document.stock], which says all",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_file(what: str) -> None:
    text, says = REFUSED[what]
    assert says in refusal(text)


def test_it_is_shown_as_it_is_written() -> None:
    assert "tables" not in masked(with_sink(""))["tube"]["stock"]
    shown = masked(with_sink(_TABLE.format("a.b") + 'key = "x"\n'))["tube"]["stock"]
    assert shown["tables"] == {"a.b": {"key": "x", "replica": False}}


def test_a_worker_begins_nothing_anew_for_it() -> None:
    old, new = (
        with_sink("[outbox.a]\n"),
        with_sink("[tube.stock]\npartitions = 4\n[outbox.a]\npartitions = 2\n"),
    )
    names = ["stock", "a"]
    assert not Changes.of(old, new, names, names)
    other = with_sink("[tube.stock]\nattempts = 4\n[outbox.a]\n")
    assert Changes.of(old, other, names, names).changed == ("stock",)
