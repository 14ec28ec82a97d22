"""How the documents of a store are named."""

from __future__ import annotations

import string

_FIELDS = {"tube", "shard", "id"}


class KeyTemplate:
    """A text with `{id}`, and maybe `{shard}` and `{tube}`, which makes the name of each document."""

    def __init__(self, text: str) -> None:
        """`ValueError` says what is wrong with the template."""
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"a key template has braces around placeholders only: {error}") from None
        fields = {field for _, field, _, _ in parts if field is not None}
        if any(spec or conversion for _, _, spec, conversion in parts) or not fields <= _FIELDS:
            raise ValueError("the placeholders of a key template are {tube}, {shard} and {id}")
        if "id" not in fields:
            raise ValueError("a key template needs {id}: else all documents of a shard have one name")
        self.text = text

    def name(self, tube: str, shard: int, id: int | str) -> str:  # noqa: A002 # as the placeholder
        """The name of one document."""
        return self.text.format(tube=tube, shard=shard, id=id)
