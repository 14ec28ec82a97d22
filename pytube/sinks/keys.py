"""Names of documents in a store, made from a template."""

from __future__ import annotations

from string import Formatter

_PLACEHOLDERS = ("tube", "shard", "id")


class KeyTemplate:
    """A template such as `{tube}:{shard}:{id}`; `{{` and `}}` stand for braces."""

    def __init__(self, text: str) -> None:
        """Raises `ValueError` when two documents could get one name, or a placeholder is unknown."""
        self.text = text
        fields: list[str] = []
        for literal, field, spec, conversion in Formatter().parse(text):
            if field is None:
                continue
            if field not in _PLACEHOLDERS or spec or conversion:
                raise ValueError("the placeholders are {tube}, {shard} and {id}")
            if fields and not literal:
                raise ValueError("two placeholders need text between them, or names would be ambiguous")
            fields.append(field)
        if "id" not in fields:
            raise ValueError("the placeholder {id} is missing, so all documents would have one name")

    def name(self, tube: str, shard: int, id: int | str) -> str:  # noqa: A002 # as the placeholder
        """The name of one document."""
        return self.text.format(tube=tube, shard=shard, id=id)
