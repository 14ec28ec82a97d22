"""Names of documents are made of templates, and differ where their documents do."""

from __future__ import annotations

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
    template.learn(lambda shard: key if shard < 10 else None)
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
    st.sampled_from(["{tenant}:{id}", "{id}-{tenant}", "x{tenant}a:1{id}"]),
)
def test_two_keys_never_have_one_name(one: tuple[str, int], other: tuple[str, int], text: str) -> None:
    template = of_columns(text)
    names = {template.name("t", 0, KEY.text(values)) for values in (one, other)}
    assert len(names) == len({one, other})


@pytest.mark.parametrize(
    ("template", "shard"), [("{tenant}:{number}", 0), ("{tenant}:{id}:{more}", 0), ("{tenant}:{id}", 10)]
)
def test_a_template_names_the_columns_that_the_key_has(template: str, shard: int) -> None:
    with pytest.raises(SinkError, match="name all of these"):
        of_columns(template).name("t", shard, '["acme", 7]')


def test_hosts_have_different_shards() -> None:
    template = KeyTemplate("{tenant}:{id}")
    template.learn(lambda shard: KEY if shard == 0 else None, "one")
    template.learn(lambda shard: KEY if shard == 1 else None, "other")
    assert [template.name("t", shard, '["a", 1]') for shard in (0, 1)] == ["a:1", "a:1"]


def test_a_template_of_columns_that_nobody_knows() -> None:
    with pytest.raises(SinkError, match="no rows are read"):
        KeyTemplate("{tenant}:{id}").name("t", 0, '["acme", 7]')
