"""From a TOML file to values, and from values to a form that may be shown.

Each fault of the file is one sentence. Secrets are in no error, and masked in that form.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from pytube.config.documents import CHILDREN, is_without_table, likely_option, shown_section
from pytube.config.models import Config
from pytube.config.section import FromEnvironment, interpolate, key_path
from pytube.config.tubes import TABLES
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
    "list_type": "an array",
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
MASK = "********"
_IF_ANY = ("hosts", "tables", "outbox", "document")
"""Sections that are shown only if the file has some."""

_SECRET_KEY = re.compile(
    r"pass|secret|token|credential|auth|api[_-]?key|private|dsn|jaas|sasl|cert|\.pem$", re.IGNORECASE
)
_USER_INFO = re.compile(r"(?<=://)[^/\s]*@")


def load(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """The configuration in the TOML file at `path`.

    Args:
        path: the file.
        environment: the variables that `${NAME}` stands for; by default the process's own.

    Raises:
        ConfigError: names the file, each faulty key, and the expected value.
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
    return from_values(raw, where, environment)


def from_values(
    values: Mapping[str, Any], where: str, environment: Mapping[str, str] | None = None
) -> Config:
    """The configuration in tables and values as TOML has them; else as `parse`."""
    try:
        data = interpolate(values, os.environ if environment is None else environment)
        # Only the names that stand in files are keys; Python's names are for embedding programs.
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
    # Sections of tables stand within `[tube.NAME.enrich]` itself, sections of children within their parent's.
    key = key_path(tuple(part for part in path if part not in (CHILDREN, TABLES))) or "the file"
    kind = fault["type"]
    if kind == "extra_forbidden":
        return f"key {key}: is unknown; {_known_keys(path)}"
    if kind == "missing":
        return f"key {key}: is missing"
    if kind in _EXPECTED:
        got = _TOML_NAMES.get(type(fault["input"]).__name__)
        return f"key {key}: expected {_EXPECTED[kind]}" + (f", got {got}" if got else "")
    message = fault["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    if is_without_table(message) and likely_option(path):
        message += f"; did you mean {likely_option(path)}?"
    return f"key {key}: {message[:1].lower()}{message[1:]}"


def _known_keys(path: tuple[str | int, ...]) -> str:
    """Names the keys that the section of the last part of `path` has, the likeliest first."""
    keys = _keys_of(_section(path[:-1]))
    close = difflib.get_close_matches(str(path[-1]), keys, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"expected one of {', '.join(sorted(keys))}"


def _keys_of(section: type[BaseModel]) -> list[str]:
    keys = [field.alias or name for name, field in section.model_fields.items()]
    return [key for key in keys if key != CHILDREN]


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


def masked(config: Config) -> dict[str, Any]:
    """The configuration by the names that the file uses, defaults included, secrets masked.

    Masked are secrets by type, all further options of Kafka, and of a sink's options those from
    the environment, those with the name of a secret, and user and password within a URL.
    """
    shown = config.model_dump(by_alias=True)
    if shown["kafka"] is not None:
        shown["kafka"]["options"] = dict.fromkeys(shown["kafka"]["options"], MASK)
    for tube in shown["tube"].values():
        options = tube["sink"]["options"]
        tube["sink"]["options"] = {key: _mask_option(key, value) for key, value in options.items()}
        tube["enrich"] |= tube["enrich"].pop(TABLES)
    for outbox in shown["outbox"].values():
        outbox["kafka_options"] = dict.fromkeys(outbox["kafka_options"], MASK)
    shown["document"] = {name: shown_section(section) for name, section in shown["document"].items()}
    plain: dict[str, Any] = _plain(shown)
    return plain


def _mask_option(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _mask_option(k, v) for k, v in value.items()}
    if isinstance(value, list):
        return [_mask_option(key, v) for v in value]
    if isinstance(value, FromEnvironment) or _SECRET_KEY.search(key):
        return MASK
    return _USER_INFO.sub(f"{MASK}@", value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if v is not None and (v or k not in _IF_ANY)}
    return value
