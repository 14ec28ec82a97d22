"""Options of a sink: a pydantic model whose errors say the key and what was expected.

Values never get into a message, because they may be secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from pytube.errors import ConfigError


class SinkOptions(BaseModel):
    """Base of the options of a sink. The description of a field is what its error says."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @classmethod
    def parse(cls, sink: str, options: Mapping[str, object]) -> Self:
        """The options of a sink of type `sink`; `ConfigError` lists everything that is wrong."""
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise ConfigError(option_errors(sink, cls, error)) from None


def option_errors(sink: str, model: type[BaseModel] | None, error: ValidationError) -> str:
    """What is wrong with the options of `sink`, one clause per key, without their values."""
    fields = model.model_fields if model is not None else {}
    clauses = []
    for item in error.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in item["loc"])
        field = fields.get(str(item["loc"][0])) if item["loc"] else None
        expected = field.description if field is not None else None
        expected = expected or item["msg"].removeprefix("Input should be ")
        if item["type"] == "extra_forbidden":
            known = ", ".join(sorted(fields)) or "none"
            clauses.append(f'option "{key}" is unknown (known: {known})')
        elif item["type"] == "missing":
            clauses.append(f'option "{key}" is missing: expected {expected}')
        else:
            clauses.append(f'option "{key}": expected {expected}')
    return f'sink "{sink}": ' + "; ".join(clauses)
