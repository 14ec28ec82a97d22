"""Names of documents are made of templates, and differ where their documents do."""

from __future__ import annotations

import pytest

from pytube.sinks.registry import KeyTemplate


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
        ("{id}:{name}", "placeholders are"),
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
