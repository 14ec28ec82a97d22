"""What all sections of the configuration have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    TypeAdapter,
    ValidationInfo,
    field_validator,
)

from pytube.config.names import table_name
from pytube.errors import ConfigError

# --- variables of the environment: `${NAME}` and `${NAME:-default}` -------------------------------

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?")


class FromEnvironment(str):
    """A string that holds the value of an environment variable, and so may be a secret."""

    __slots__ = ()


def key_path(path: tuple[str | int, ...]) -> str:
    """The path of a key as it is written in TOML, e.g. `tube."es-live".sink`."""
    parts = [str(part) if re.fullmatch(r"[A-Za-z_0-9]+", str(part)) else f'"{part}"' for part in path]
    return ".".join(parts)


def interpolate(value: Any, environment: Mapping[str, str], path: tuple[str | int, ...] = ()) -> Any:
    """The value with every reference in every string replaced; `$${` stands for `${` itself.

    Raises:
        ConfigError: a variable is not set and has no default, or a reference is malformed. The
            message names the key at `path`.
    """
    if isinstance(value, Mapping):
        return {k: interpolate(v, environment, (*path, k)) for k, v in value.items()}
    if isinstance(value, list):
        return [interpolate(v, environment, (*path, i)) for i, v in enumerate(value)]
    if isinstance(value, str) and "${" in value:
        return _interpolate_text(value, environment, path)
    return value


def _interpolate_text(text: str, environment: Mapping[str, str], path: tuple[str | int, ...]) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match[1], match[2]
        if name is None:
            raise ConfigError(
                f"key {key_path(path)}: expected ${{NAME}} or ${{NAME:-default}} after '${{' "
                "(write $${ for the two characters themselves)"
            )
        # As in a shell, `:-` also stands in for a variable that is set but empty.
        value = environment.get(name)
        if value is None and default is None:
            raise ConfigError(
                f"key {key_path(path)}: the environment variable {name} is not set; "
                f"set it, or give a default with ${{{name}:-default}}"
            )
        return value or default or ""

    return FromEnvironment(_REFERENCE.sub(replace, text))


# --- sections -------------------------------------------------------------------------------------


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


def _checked_table(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("expected the name of a table, a string")  # noqa: TRY004 # pydantic's way
    table_name(value)
    return value


Table = Annotated[str, BeforeValidator(_checked_table)]
"""A table as `schema.table`."""
MOST_PARTITIONS = 1024
MOST_SHARD = 2**31 - 1
HOST_SHARDS = 1_000_000
"""Of several hosts, the second one's shards begin here, the third one's at twice as many, and so on."""


class DeclaringSection(Section):
    """A section with keys that are applied to the database."""

    DECLARING: ClassVar[tuple[str, ...]]
    """Their names."""

    @property
    def declared(self) -> tuple[str, ...]:
        """The given ones; none: the tube or outbox is managed manually, and left alone."""
        return tuple(name for name in self.DECLARING if getattr(self, name) != self._default(name))

    def as_served(self) -> Self:
        """The section without these: a change of them alone restarts nothing in a worker."""
        return self.model_copy(update={name: self._default(name) for name in self.DECLARING})

    @classmethod
    def _default(cls, name: str) -> object:
        return cls.model_fields[name].get_default(call_default_factory=True)
