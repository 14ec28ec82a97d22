"""`[document.NAME]`: what a file may say, how a wrong one is told, and how it is shown."""

from __future__ import annotations

import pytest

from pytube.config import Config, parse
from pytube.config.loader import masked
from pytube.errors import ConfigError

_POSTGRES = '[postgres]\ndsn = "dbname=x"\n'
_SINK = '[tube.orders.sink]\ntype = "jsonl"\n'
_ORDERS = '[document.orders]\ntable = "shop.orders"\nfields = ["id"]\n'
_ITEMS = '[document.orders.items]\nmany = "shop.items"\n'


def with_sink(text: str) -> Config:
    return parse(_POSTGRES + text + "\n" + _SINK)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        with_sink(text)
    return str(caught.value).removeprefix("pytube.toml: ")


def test_a_section_within_a_section_is_a_child_by_its_name_and_in_its_order() -> None:
    config = with_sink(
        _ORDERS
        + '[document.orders.items]\nmany = "shop.items"\nfields = ["*"]\norder_by = "a"\nlimit = 3\n'
        + '[document.orders.items.product]\none = "shop.products"\nfields = ["name"]\n'
        + '[document.orders.children]\nmany = "shop.orders"\nby = "parent"\nlist = "id"\n'
        + '[document.orders."A b".c]\none = "shop.c"\nfields = ["x"]\n'
        + '[document.orders."A b"]\none = "shop.a"\nby = ["x", "y"]\nflatten = true\n'
    )
    section = config.documents["orders"]
    assert (section.partitions, section.shards) == (4, 16)
    assert list(section.children) == ["items", "children", "A b"]
    items = section.children["items"]
    assert (items.table, items.order_by, items.limit) == ("shop.items", ["a"], 3)
    assert items.children["product"].one == "shop.products"
    assert section.children["children"].elements == "id"
    assert section.children["A b"].by == [["x"], ["y"]]
    assert list(section.children["A b"].children) == ["c"]


def test_an_option_s_name_may_be_a_child_s() -> None:
    section = with_sink(_ORDERS + '[document.orders.value]\none = "shop.v"\nfields = ["x"]\n').documents[
        "orders"
    ]
    assert section.children["value"].one == "shop.v"


def test_by_and_on_of_both_sides_of_a_join_table() -> None:
    through = _ORDERS + _ITEMS + 'through = "shop.j"\nfields = ["x"]\n'
    assert with_sink(through + 'by = ["a", ["b", "c"]]').documents["orders"].children["items"].by == [
        ["a"],
        ["b", "c"],
    ]
    on = with_sink(through + 'on = [{ id = "a" }, { b = "id" }]').documents["orders"].children["items"].on
    assert on == [{"id": "a"}, {"b": "id"}]


def test_what_is_shown_is_what_could_be_written() -> None:
    text = (
        _ORDERS
        + _ITEMS
        + 'fields = ["body"]\nby = "order_id"\ntree = { by = "parent_id", as = "replies", depth = 3 }\n'
        + '[document.orders.items."a b"]\nmany = "shop.b"\nvalue = "count(*)"\non = { id = "b" }\n'
    )
    shown = masked(with_sink(text))["document"]
    assert shown == {
        "orders": {
            "table": "shop.orders",
            "fields": ["id"],
            "partitions": 4,
            "shards": 16,
            "items": {
                "many": "shop.items",
                "fields": ["body"],
                "by": "order_id",
                "tree": {"by": ["parent_id"], "as": "replies", "depth": 3},
                "a b": {"many": "shop.b", "value": "count(*)", "on": {"id": "b"}},
            },
        }
    }
    assert "document" not in masked(parse(_POSTGRES + _SINK))


@pytest.mark.parametrize(
    "text",
    [
        _ORDERS.replace('"id"', r'"id + 1 AS \"a\u0000b\""'),
        _ORDERS + r'where = "id > 0 \u0000"',
        _ORDERS + r'[document.orders."a\u0000b"]' + '\none = "shop.c"\nfields = ["name"]',
        _ORDERS + _ITEMS + 'fields = ["x"]\n' + r'tree = { by = "p", as = "a\u0000b", depth = 2 }',
        _ORDERS + _ITEMS + 'fields = ["x"]\n' + r'on = { id = "a\u0000b" }',
    ],
)
def test_no_text_has_the_character_that_stands_for_placeholders(text: str) -> None:
    assert "has the character U+0000, which Postgres has in no text; take it out" in refusal(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_ORDERS + 'feilds = ["x"]', "key document.orders.feilds: is unknown; did you mean fields?"),
        (
            _ORDERS + "limit = 3",
            (
                "key document.orders.limit: is unknown; expected one of fields, partitions, shard_by, "
                "shards, table, where"
            ),
        ),
        (
            _ORDERS + _ITEMS + 'feilds = ["x"]',
            "key document.orders.items.feilds: is unknown; did you mean fields?",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\ntre = { by = "x", as = "y", depth = 2 }',
            (
                "key document.orders.items.tre: is a section of a child, which names its table by one or "
                "many; did you mean tree?"
            ),
        ),
        (
            _ORDERS + '[document.orders.items]\nmny = "shop.items"\nfields = ["x"]',
            (
                "key document.orders.items: is a section of a child, which names its table by one or many, "
                "not by mny"
            ),
        ),
        (
            _ORDERS + _ITEMS + 'one = "shop.items"\nfields = ["x"]',
            "key document.orders.items: one and many can't stand side by side; take one of them out",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\n[document.orders.items."a b"]\nx = 1',
            'key document.orders.items."a b": is a section of a child, which names its table by one or many',
        ),
        ('[document.orders]\nfields = ["id"]', "key document.orders.table: is missing"),
        (
            '[document.orders]\ntable = "orders"\nfields = ["id"]',
            (
                "key document.orders.table: 'orders' does not name a table; expected schema.table, quoted as "
                "in SQL"
            ),
        ),
        (
            '[document.orders]\ntable = "shop.orders"',
            'key document.orders: fields is missing; name the columns that the document has, or "*" for all',
        ),
        (_ORDERS + "shards = 3", "key document.orders: expected at least as many shards as partitions, 4"),
        (_ORDERS + "partitions = 0", "key document.orders.partitions: expected greater than or equal to 1"),
        (
            _ORDERS + _ITEMS,
            (
                'key document.orders.items: fields is missing; name the columns, or "*" for all; or write '
                "list "
                "or "
                "value for a scalar"
            ),
        ),
        (
            _ORDERS + _ITEMS + 'list = "x"\nvalue = "y"',
            "key document.orders.items: list and value can't stand side by side; take one of them out",
        ),
        (
            _ORDERS + _ITEMS + 'list = "x"\nfields = ["y"]',
            "key document.orders.items: fields, children and tree can't stand beside list; take them out",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\nflatten = true',
            (
                "key document.orders.items: flatten goes with one: an array has no fields that the parent "
                "could take"
            ),
        ),
        (
            _ORDERS + '[document.orders.c]\none = "shop.c"\nlist = "x"',
            "key document.orders.c: list goes with many; of one row write value",
        ),
        (
            _ORDERS + '[document.orders.c]\none = "shop.c"\nfields = ["x"]\nlimit = 1',
            (
                "key document.orders.c: limit goes with many; of one there is at most one row, the first by "
                "order_by"
            ),
        ),
        (_ORDERS + _ITEMS + 'fields = ["x"]\nlimit = 0', "key document.orders.items.limit: expected greater"),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\nby = "x"\non = { id = "y" }',
            "key document.orders.items: by and on can't stand side by side",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\nby = [1]',
            "key document.orders.items.by: expected a string or an array of strings",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\non = "id"',
            "key document.orders.items.on: expected columns here and",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\nthrough = "shop.j"\nby = "a"',
            "key document.orders.items: with through, by needs two entries",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\nthrough = "shop.j"\non = { id = "a" }',
            "key document.orders.items: on needs two tables beside through",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\ntree = { by = "a", as = "b" }',
            "key document.orders.items.tree.depth: is missing",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\ntree = { by = "a", as = "b", depth = 21 }',
            "key document.orders.items.tree.depth: expected less than or equal to 20",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\ntree = { as = "b", depth = 2 }',
            "key document.orders.items.tree: expected by, the columns that refer to the table itself",
        ),
        (
            _ORDERS + _ITEMS + 'fields = ["x"]\ntree = { by = "a", as = "b", dept = 2, depth = 2 }',
            "key document.orders.items.tree.dept: is unknown; did you mean depth?",
        ),
        (
            _ORDERS.replace("fields", "partitions = 1025\nfields", 1),
            "key document.orders.partitions: expected less than or equal to 1024",
        ),
        (
            _ORDERS.replace("fields", f"shards = {2**31}\nfields", 1),
            "key document.orders.shards: expected less than or equal to 2147483647",
        ),
        (
            _ORDERS + f'[document.orders.items]\nmany = "shop.items"\nfields = ["id"]\nlimit = {2**31}',
            "key document.orders.items.limit: expected less than or equal to 2147483647",
        ),
        (
            _ORDERS + '[tube.orders.enrich]\nmode = "row"',
            (
                "key tube.orders.enrich: conflicts with [document.orders], which already defines the "
                "documents; remove one of the two"
            ),
        ),
        (
            _ORDERS + '[document.others]\ntable = "shop.others"\nfields = ["id"]',
            (
                "key document.others: has no tube; add a section [tube.others.sink], which says where the "
                "documents go"
            ),
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_key(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


def test_shards_of_a_document_are_not_those_of_the_next_host() -> None:
    hosts = '[postgres.hosts.a]\ndsn = "dbname=a"\n[postgres.hosts.b]\ndsn = "dbname=b"\n'
    text = hosts + _ORDERS.replace("fields", "shards = 1_000_000\nfields", 1) + _SINK
    config = parse(text)
    assert [config.of_host(name).first_shard for name in (*config.hosts,)] == [0, 1_000_000]
    assert parse('[postgres]\ndsn = "dbname=a"').first_shard is None
    with pytest.raises(
        ConfigError,
        match=r"key document\.orders: with several hosts, each has 1000000 shards, and these end at 1000001",
    ):
        parse(text.replace("1_000_000", "1_000_001"))
