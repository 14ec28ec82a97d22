"""Reads a configuration file, and says what is wrong with it in one sentence a fault."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pytube.config.environment import interpolate, key_path
from pytube.config.models import Config
from pytube.errors import ConfigError

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_TOML_NAMES = {
    "str": "a string",
    "FromEnvironment": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "a table",
    "list": "an array",
}


def load(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """The configuration in the TOML file at `path`.

    Args:
        path: the file.
        environment: the variables that `${NAME}` stands for; by default the process's own.

    Raises:
        ConfigError: names the file, each faulty key, and what was expected there.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file; name the configuration with --config or PYTUBE_CONFIG"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {_reason(error)}") from None
    return parse(text, str(path), environment)


def parse(text: str, where: str = "pytube.toml", environment: Mapping[str, str] | None = None) -> Config:
    """The configuration in a TOML text; `where` names it in errors. Raises as `load` does."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: is not TOML: {error}") from None
    try:
        data = interpolate(raw, os.environ if environment is None else environment)
        # Only the names that stand in files are keys; Python's own are for those who embed us.
        return Config.model_validate(data, by_alias=True, by_name=False)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except ValidationError as error:
        faults = "; ".join(_describe(fault) for fault in error.errors())
        raise ConfigError(f"{where}: {faults}") from None


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8"


def _describe(fault: ErrorDetails) -> str:
    """One fault as a sentence. Never repeats a value, which may be a secret."""
    path = fault["loc"]
    key = key_path(path) or "the file"
    kind = fault["type"]
    if kind == "extra_forbidden":
        return f"key {key}: is unknown; {_known_keys(path)}"
    if kind == "missing":
        return f"key {key}: is missing"
    if kind in _EXPECTED:
        got = _TOML_NAMES.get(type(fault["input"]).__name__)
        return f"key {key}: expected {_EXPECTED[kind]}" + (f", got {got}" if got else "")
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    return f"key {key}: {message[:1].lower()}{message[1:]}"


def _known_keys(path: tuple[str | int, ...]) -> str:
    """Names the keys that the section of the last part of `path` has, the likeliest first."""
    keys = _keys_of(_section(path[:-1]))
    close = difflib.get_close_matches(str(path[-1]), keys, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"expected one of {', '.join(sorted(keys))}"


def _keys_of(section: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


def _section(path: tuple[str | int, ...]) -> type[BaseModel]:
    """The class of the section at `path`."""
    section: type[BaseModel] = Config
    for part in path:
        for name, field in section.model_fields.items():
            if part == (field.alias or name):
                section = _class_in(field.annotation) or section
                break
    return section


def _class_in(annotation: Any) -> type[BaseModel] | None:
    """The section within an annotation such as `KafkaConfig | None` or `dict[str, TubeConfig]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        found = _class_in(part)
        if found is not None:
            return found
    return None
