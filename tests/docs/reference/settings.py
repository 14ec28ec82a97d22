"""The tables of the configuration, from the models: types, bounds, defaults, and the docstrings of keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pytube.config import (
    BackfillConfig,
    ChildSection,
    DocumentSection,
    EnrichConfig,
    KafkaConfig,
    OutboxConfig,
    PostgresConfig,
    SinkConfig,
    TreeSection,
    TubeConfig,
    WorkerConfig,
)
from pytube.config.documents import CHILDREN
from pytube.config.section import OR_OFF
from pytube.config.tubes import AttachmentConfig, VerifyConfig
from tests.docs.reference.markdown import code, docstrings, sentence, table

SECTIONS: Mapping[str, type[BaseModel]] = {
    "postgres": PostgresConfig,
    "kafka": KafkaConfig,
    "worker": WorkerConfig,
    "tube": TubeConfig,
    "tables": AttachmentConfig,
    "sink": SinkConfig,
    "enrich": EnrichConfig,
    "backfill": BackfillConfig,
    "verify": VerifyConfig,
    "document": DocumentSection,
    "child": ChildSection,
    "tree": TreeSection,
    "outbox": OutboxConfig,
}
"""By the name of their place on the page."""

_TYPES: Mapping[Any, str] = {
    str: "text",
    SecretStr: "text, secret",
    int: "whole number",
    float: "number",
    bool: "`true`, `false`",
}


def parts() -> Mapping[str, str]:
    """The table of each section."""
    return {name: _section(model) for name, model in SECTIONS.items()}


def _section(model: type[BaseModel]) -> str:
    said = docstrings(model)
    rows = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key == CHILDREN or (model is ChildSection and key in DocumentSection.model_fields):
            continue  # sections of their own, and keys that the page has a section earlier
        assert name in said, f"{model.__name__}.{name} has no docstring"
        rows.append((code(key), _kind(field), _default(field), sentence(said[name])))
    return table(("key", "type", "default", "meaning"), rows)


def _kind(field: FieldInfo) -> str:
    """The type with its bounds."""
    kinds = dict.fromkeys(_named(field.annotation))
    off = ', or `"off"`' if OR_OFF[0] in field.metadata else ""
    return " or ".join(kinds) + _bounds(field) + off


def _named(annotation: Any) -> list[str]:
    """What a value may be; that it may be left out is no type of it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _TYPES:
        return [_TYPES[annotation]]
    if origin is Literal:
        return [", ".join(code(json.dumps(one)) for one in arguments)]
    if origin is list:
        return ["list"]
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return ["section"]
    inner = arguments[:1] if hasattr(annotation, "__metadata__") else arguments
    return [kind for one in inner if one is not NoneType for kind in _named(one)]


def _bounds(field: FieldInfo) -> str:
    least = next((one.ge for one in field.metadata if isinstance(one, Ge)), None)
    above = next((one.gt for one in field.metadata if isinstance(one, Gt)), None)
    most = next((one.le for one in field.metadata if isinstance(one, Le)), None)
    if any(isinstance(one, MinLen) for one in field.metadata):
        return ""  # a text that is not empty
    if least is not None and most is not None:
        return f", {_number(least)} to {_number(most)}"
    if least is not None:
        return f" ≥ {_number(least)}"
    if above is not None:
        return f" > {_number(above)}" + ("" if most is None else f", ≤ {_number(most)}")
    return ""


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=False)
    if isinstance(default, bool | str):
        return code(json.dumps(default))
    if isinstance(default, int | float):
        return code(default)
    assert default is None or default is PydanticUndefined or isinstance(default, BaseModel)
    return ""
