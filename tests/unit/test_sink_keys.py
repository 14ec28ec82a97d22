"""Names of documents are made of templates, and differ where their documents do."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.errors import SinkError
from pytube.keys import CompositeKey, KeyColumn, PartType
from pytube.sinks.registry import KeyTemplate

KEY = CompositeKey((KeyColumn("tenant", PartType.TEXT), KeyColumn("id", PartType.BIGINT)))


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{id}", "7"),
        ("{tube}:{shard}:{id}", "es-live:3:7"),
        ("{{{tube}:{shard}}}:{id}", "{es-live:3}:7"),
        ("user/{id}.json", "user/7.json"),
    ],
)
def test_name(template: str, name: str) -> None:
    assert KeyTemplate(template).name("es-live", 3, 7) == name
    assert KeyTemplate(template).name("es-live", 3, "7") == name


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("all", "missing"),
        ("{shard}", "missing"),
        ("{shard}{id}", "between"),
        ("{tenant}{id}", "between"),
        ("{tenant}x{id}", "sign such as"),
        ("{tenant}%{id}", "sign such as"),
        ("{a}x{b}:{c}", "sign such as"),
        ("{a}:{b}%{c}", "sign such as"),
        ("{a}:{b}1{tube}", "sign such as"),
        ("{id!r}", "placeholders are"),
        ("{id:>9}", "placeholders are"),
        ("{id.__class__}", "placeholders are"),
        ("{}{id}", "placeholders are"),
        ("{id", "expected '}'"),
    ],
)
def test_templates_that_can_not_be(template: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        KeyTemplate(template)


def test_an_id_is_no_template() -> None:
    assert KeyTemplate("x:{id}").name("t", 0, "{tube}{id}") == "x:{tube}{id}"


def of_columns(text: str, key: CompositeKey | None = KEY) -> KeyTemplate:
    template = KeyTemplate(text)
    template.learn_keys(lambda shard: key if shard < 10 else None)
    return template


@pytest.mark.parametrize(
    ("template", "key", "name"),
    [
        ("{tenant}:{id}", '["acme", 7]', "acme:7"),
        ("{id}:{tenant}", '["acme", 7]', "7:acme"),
        ("{tube}/{shard}/{tenant}:{id}", '["acme", 7]', "t/3/acme:7"),
        ("{tenant}:{id}", '["a:b%", -7]', "a%3Ab%25:-7"),
        ("{tenant}-{id}", '["é €", -7]', "é €-%2D7"),
        ("{tenant}:{id}", '["{id}", 7]', "{id}:7"),
        ("{tenant}:{id}", "7:12", "7%3A12"),
        ("{{{tube}:{shard}}}:{tenant}:{id}", "7:12", "{t:3}:7%3A12"),
        ("x{tenant}}}{id}", '["a}", 7]', "xa%7D}7"),
        ("{id}", '["acme", 7]', '["acme", 7]'),
    ],
)
def test_columns_of_a_key(template: str, key: str, name: str) -> None:
    assert of_columns(template).name("t", 3, key) == name


def test_a_value_of_each_type() -> None:
    types = [PartType.BOOLEAN, PartType.DATE, PartType.UUID, PartType.ENUM]
    key = CompositeKey(tuple(KeyColumn(of.value, of) for of in types))
    text = key.text([True, "2026-01-02", "00000000-0000-0000-0000-000000000001", "a|b"])
    name = of_columns("{boolean}|{date}|{uuid}|{enum}", key).name("t", 0, text)
    assert name == "true|2026-01-02|00000000-0000-0000-0000-000000000001|a%7Cb"


@given(
    *[st.tuples(st.text(st.sampled_from("a:%3A25-1"), max_size=4), st.integers(-20, 20))] * 2,
    st.sampled_from(["{tenant}:{id}", "{id}-{tenant}", "x{tenant}a:1{id}", "{tenant}}}{id}"]),
)
def test_two_keys_never_have_one_name(one: tuple[str, int], other: tuple[str, int], text: str) -> None:
    template = of_columns(text)
    names = {template.name("t", 0, KEY.text(values)) for values in (one, other)}
    assert len(names) == len({one, other})


@pytest.mark.parametrize("text", ["{a}x{b}:{c}", "{a}-x{b}:1{c}", "{a}x-{b}%:{c}", "{tube}1:{a}:{b}-{c}"])
def test_nor_have_those_of_three_columns(text: str) -> None:
    key = CompositeKey(tuple(KeyColumn(name, PartType.TEXT) for name in "abc"))
    parts = ["", *"x:%1-", "x1", "1x", "x-", "-x", "25%", "1:", ":1"]
    keys = [key.text(values) for values in product(parts, repeat=3)]
    try:
        template = of_columns(text, key)
    except ValueError:
        return  # that they had is why
    assert len({template.name("t", 0, one) for one in keys}) == len(keys)


def test_the_name_of_a_key_of_no_row_is_that_of_no_row() -> None:
    template = of_columns("{tube}/{tenant}:{id}")
    assert template.name("t", 0, "a:1") == "t/a%3A1"
    assert template.name("t", 0, '["a", 1]') == "t/a:1"


@pytest.mark.parametrize("taken", ["tube", "shard"])
def test_a_column_with_the_name_of_another_placeholder(taken: str) -> None:
    key = CompositeKey((KeyColumn("tenant", PartType.TEXT), KeyColumn(taken, PartType.TEXT)))
    reason = KeyTemplate(f"{{tenant}}:{{{taken}}}").why_not(key, "public.docs")
    assert reason == (
        f"{{tenant}}:{{{taken}}} names tenant, and keys of public.docs are of tenant, {taken}; "
        f"give {{id}} alone: {{{taken}}} stands for the {taken} of pytube, not for a column"
    )


def test_keys_of_one_column() -> None:
    template = KeyTemplate("{tenant}:{id}")
    assert template.why_not(None, "public.t") == (
        "{tenant}:{id} names id, tenant, and keys of public.t are of one column; write {id}"
    )
    assert template.why_not(KEY, "public.t") is None
    assert KeyTemplate("{id}").why_not(None, "public.t") is None
    assert KeyTemplate("{shard}:{id}").why_not(KEY, "public.t") is None


@pytest.mark.parametrize(
    ("template", "shard"), [("{tenant}:{number}", 0), ("{tenant}:{id}:{more}", 0), ("{tenant}:{id}", 10)]
)
def test_a_template_names_the_columns_that_the_key_has(template: str, shard: int) -> None:
    with pytest.raises(SinkError, match="names .*, and keys of shard"):
        of_columns(template).name("t", shard, '["acme", 7]')


def test_hosts_have_different_shards() -> None:
    template = KeyTemplate("{tenant}:{id}")
    template.learn_keys(lambda shard: KEY if shard == 0 else None, "one")
    template.learn_keys(lambda shard: KEY if shard == 1 else None, "other")
    assert [template.name("t", shard, '["a", 1]') for shard in (0, 1)] == ["a:1", "a:1"]


def test_a_template_of_columns_that_nobody_knows() -> None:
    with pytest.raises(SinkError, match="no rows are read"):
        KeyTemplate("{tenant}:{id}").name("t", 0, '["acme", 7]')
