"""The options of a sink, as its page lists them and as its class has them."""

from __future__ import annotations

import json

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tests.docs.pages import BY_NAME, table_rows


def documented(sink: str) -> dict[str, str]:
    """Each option of the page `docs/sinks/SINK.md`, with its default as it is written there."""
    rows = table_rows(BY_NAME[f"docs/sinks/{sink}.md"].section("Settings"))
    return {row[0].strip("`"): row[1] for row in rows}


def defaults(options: type[BaseModel]) -> dict[str, str]:
    """Each option of the class, with its default as a page is to write it."""
    return {name: _written(field) for name, field in options.model_fields.items()}


def _written(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    default = field.get_default(call_default_factory=True, validated_data={})
    return "none" if default is None or default in ((), {}) else f"`{json.dumps(default)}`"
