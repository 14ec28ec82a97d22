"""What all sections of the configuration have in common."""

from __future__ import annotations

from typing import Any

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
            kind = cls.model_fields[info.field_name].annotation
            if kind in (int, float, bool):
                return TypeAdapter(kind).validate_python(str(value), strict=False)
        return value


OR_OFF = (
    BeforeValidator(lambda value: None if value == "off" else value),
    PlainSerializer(lambda value: "off" if value is None else value),
)
"""A limit that can be switched off, as TOML has no word for none."""
