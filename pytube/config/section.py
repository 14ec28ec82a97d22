"""What all sections of the configuration have in common."""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    TypeAdapter,
    ValidationInfo,
    field_validator,
)

from pytube.config.environment import FromEnvironment


def _number(annotation: Any) -> type | None:
    """What a field holds that is a number or a flag, though it may be left out; None for other fields."""
    kinds = set(get_args(annotation) or [annotation]) - {NoneType}
    return kinds.pop() if len(kinds) == 1 and kinds <= {int, float, bool} else None


class Section(BaseModel):
    """Base of all sections: immutable, typed strictly, closed to unknown keys."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _number_from_environment(cls, value: Any, info: ValidationInfo) -> Any:
        """Environment variables are text: read them as the number or flag that is expected."""
        if isinstance(value, FromEnvironment) and info.field_name is not None:
            kind = _number(cls.model_fields[info.field_name].annotation)
            if kind is bool or (kind is not None and value != "off"):
                return TypeAdapter(kind).validate_python(str(value), strict=False)
        return value


OR_OFF = (
    BeforeValidator(lambda value: None if value == "off" else value),
    PlainSerializer(lambda value: "off" if value is None else value),
)
"""A limit that can be switched off, as TOML has no word for none."""
