"""Names of documents in a store, made of tube, shard and id by a template of the configuration."""

from __future__ import annotations

from string import Formatter

_FIELDS = {"tube", "shard", "id"}


class KeyTemplate:
    """A text with `{id}`, and perhaps `{tube}` and `{shard}`; `{{` and `}}` are plain braces."""

    def __init__(self, text: str) -> None:
        """Raises `ValueError`, which says what is wrong with the template."""
        try:
            parts = list(Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"the template is wrong: {error}") from None
        fields = [field for _, field, _, _ in parts if field is not None]
        if any(spec or conversion for _, _, spec, conversion in parts) or not set(fields) <= _FIELDS:
            raise ValueError("a template may hold {tube}, {shard} and {id}, and no other placeholder")
        if "id" not in fields:
            raise ValueError("a template must hold {id}, or all documents would have one name")
        self._format = text.format

    def name(self, tube: str, shard: int, id: int | str) -> str:  # noqa: A002 # as in the template
        """The name of one document."""
        return self._format(tube=tube, shard=shard, id=id)
