"""Finds a sink by the type that the configuration names, and builds it from its options.

Errors name the option and the expected value, never a value, because it may be a secret.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from string import Formatter
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from pytube.errors import ConfigError, SinkError, how_to_install
from pytube.keys import CompositeKey
from pytube.model import KeyType
from pytube.sinks.base import Bounded, Keyed, Sink, SinkFactory
from pytube.sinks.parts import Parts, PartsSink, place_of
from pytube.targets import import_object

# --- names of documents in a store ----------------------------------------------------------------

_PLACEHOLDERS = ("tube", "shard", "id")


class KeyTemplate:
    """A template such as `{tube}:{shard}:{id}`; `{{` and `}}` stand for braces.

    A template with another placeholder, as `{tenant_id}:{id}`, is for keys of several columns, and names all
    of them. The text between placeholders is percent-encoded in their values, and so is `%`: two keys of a
    table never have one name.
    """

    def __init__(self, text: str) -> None:
        """Raises `ValueError` when two documents could get one name, or a placeholder is none."""
        self.text = text
        parts = list(_parts_of(text))
        fields = [field for _, field in parts if field is not None]
        between = [literal for literal, field in parts[1:] if field is not None]
        if not all(between):
            raise ValueError("two placeholders need text between them, or names would be ambiguous")
        self.columns = frozenset(fields).difference(_PLACEHOLDERS) and frozenset(fields) - {"tube", "shard"}
        """The columns of keys that it names; none: `{id}` is the whole key."""
        if not self.columns and "id" not in fields:
            raise ValueError("the placeholder {id} is missing, so all documents would have one name")
        marks = [{mark for mark in literal if not mark.isalnum()} - {"%"} for literal in between]
        # Each needs its own: no value has it, so a value ends before the first sign that follows.
        if self.columns and not all(marks):
            raise ValueError("columns need a sign such as : between any two, or names would be ambiguous")
        self._encoded = str.maketrans(
            {mark: "".join(f"%{byte:02X}" for byte in mark.encode()) for mark in {"%"}.union(*marks)}
        )
        self._before = _before_columns(parts, self.columns)
        self._key_of: dict[str | None, Callable[[int], CompositeKey | None]] = {}
        """By host."""

    def learn_keys(self, key_of: Callable[[int], CompositeKey | None], host: str | None = None) -> None:
        """`key_of`: of which columns the keys of a shard are made, as it is from now on; None: of one.

        Called before the first document is sent or read, and whenever the tables of the tube change. Several
        Postgres hosts, which have different shards, are set one by one.
        """
        self._key_of[host] = key_of

    def why_no_name(self, key: CompositeKey | None, table: str) -> str | None:
        """As `why_not`, with the name of the option. While there is a reason, no row is read."""
        reason = self.why_not(key, table)
        return reason and f'option "key" of the sink: {reason}'

    def why_not(self, key: CompositeKey | None, table: str) -> str | None:
        """Why keys of these columns, of a table, can't be named, and what to do: as one sentence with a `;`.

        None: they can.
        """
        names = [] if key is None else [column.name for column in key.columns]
        if not self.columns or self.columns == set(names):
            return None
        of, remedy = ", ".join(names) or "one column", "write {id}"
        if taken := [name for name in names if name in ("tube", "shard")]:
            remedy = (
                f"give {{id}} alone: {{{taken[0]}}} stands for the {taken[0]} of pytube, not for a column"
            )
        elif names:
            remedy = "name all of these, or give {id} alone, which is the whole key as one text"
        return (
            f"{self.text} names {', '.join(sorted(self.columns))}, and keys of {table} are of {of}; {remedy}"
        )

    def name(self, tube: str, shard: int, id: int | str) -> str:  # noqa: A002 # as the placeholder
        """The name of one document; `SinkError` where it names other columns than the key has."""
        if not self.columns:
            return self.text.format(tube=tube, shard=shard, id=id)
        if not self._key_of:
            raise SinkError(
                f'option "key" of the sink: {self.text} names columns, and none are known: no rows are read'
            )
        keys = (key_of(shard) for key_of in self._key_of.values())
        key = next((key for key in keys if key is not None), None)
        reason = self.why_no_name(key, f"shard {shard}")
        if key is None or reason is not None:
            raise SinkError(reason)
        values = key.by_name(str(id))
        if values is None:
            # Of no row: nothing was ever written under it. In names of rows, a sign stands between values.
            return self._before.format(tube=tube, shard=shard) + str(id).translate(self._encoded)
        texts = {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()
        }
        return self.text.format(
            **{name: text.translate(self._encoded) for name, text in texts.items()}, tube=tube, shard=shard
        )

    def example(self, value: str, tube: str = "t", shard: int = 0) -> str:
        """A name in which `value` stands for the id, or for each column."""
        return self.text.format(**dict.fromkeys({*self.columns, "id"}, value), tube=tube, shard=shard)


def _parts_of(text: str) -> Iterator[tuple[str, str | None]]:
    """Each literal with the placeholder that follows it; None after the last."""
    literals = ""
    for literal, field, spec, conversion in Formatter().parse(text):
        literals += literal
        # A brace ends a literal, too, and then no placeholder follows.
        if field is None:
            continue
        if not field.isidentifier() or spec or conversion:
            raise ValueError("the placeholders are {tube}, {shard} and {id}, or columns of a key of several")
        yield literals, field
        literals = ""
    yield literals, None


def _before_columns(parts: Sequence[tuple[str, str | None]], columns: Collection[str]) -> str:
    """What a template begins with, up to the first column, as a template."""
    found = ""
    for literal, field in parts:
        found += literal.replace("{", "{{").replace("}", "}}")
        if field is None or field in columns:
            break
        found += f"{{{field}}}"
    return found


def naming_of(sink: object) -> KeyTemplate | None:
    """The `template` of a sink, if it names columns of keys."""
    template = getattr(sink, "template", None)
    return template if isinstance(template, KeyTemplate) and template.columns else None


def _checked_template(text: str) -> str:
    KeyTemplate(text)
    return text


TemplateText = Annotated[str, AfterValidator(_checked_template)]
"""An option that is a `KeyTemplate`."""


# --- options, and who reads them ------------------------------------------------------------------


GROUP = "pytube.sinks"


class SinkOptions(BaseModel):
    """Base of the options of a sink. The description of a field is what its error says."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @classmethod
    def parse(cls, sink: str, options: Mapping[str, object]) -> Self:
        """The options of a sink of type `sink`; `ConfigError` lists everything that is wrong."""
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise ConfigError(_option_errors(sink, cls, error)) from None

    def faults(self) -> Iterator[str]:
        """Faults that no single field can check. Messages name no secrets."""
        return iter(())

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if faults := list(self.faults()):
            raise ValueError("; ".join(faults))
        return self


class ServerOptions(SinkOptions):
    """Base of the options of a sink that has connections to a server, which may be encrypted."""

    ca_file: str | None = Field(default=None, min_length=1, description="a PEM file of certificates to trust")
    client_cert: str | None = Field(
        default=None, min_length=1, description="a PEM file, the certificate of this client"
    )
    client_key: str | None = Field(
        default=None, min_length=1, description="a PEM file, the key of client_cert"
    )
    connect_timeout: float = Field(default=5.0, gt=0, description="a number of seconds above 0")
    timeout: float = Field(default=10.0, gt=0, description="a number of seconds above 0")
    pool_size: int = Field(default=16, ge=1, description="a number of connections, 1 or more")

    def faults(self) -> Iterator[str]:
        """See `SinkOptions.faults`."""
        if self.client_key is not None and self.client_cert is None:
            yield "client_key goes with client_cert"


def known_sinks() -> list[str]:
    """The types that are installed, sorted."""
    return sorted({point.name for point in entry_points(group=GROUP)})


_found: dict[tuple[str, ...], tuple[EntryPoint, ...]] = {}
"""What distributions offer, by the path: to look reads the metadata of each, for each section of the file."""


def _offered(sink_type: str) -> dict[str, EntryPoint]:
    """The classes of this type, by their names. If it is not known, it may have been installed by now."""
    path = tuple(sys.path)
    points = {point.value: point for point in _found.get(path, ()) if point.name == sink_type}
    if not points:
        _found[path] = tuple(entry_points(group=GROUP))
        points = {point.value: point for point in _found[path] if point.name == sink_type}
    return points


def find_sink(sink_type: str) -> SinkFactory:
    """The class behind `sink_type`; `ConfigError` lists the known types when there is none.

    A type with a colon is the class itself, as `module:Class`: no distribution has to offer it.
    """
    if ":" in sink_type:
        return _checked(sink_type, sink_type, import_object(sink_type, "type"))
    points = _offered(sink_type)
    if not points:
        known = ", ".join(known_sinks()) or "none: is pytube installed?"
        raise ConfigError(f'unknown sink type "{sink_type}"; the installed ones are: {known}')
    if len(points) > 1:
        raise ConfigError(
            f'sink type "{sink_type}" is offered twice: {", ".join(sorted(points))}; '
            "uninstall one of the two distributions"
        )
    return _load(next(iter(points.values())))


def build_sink(
    sink_type: str,
    options: Mapping[str, object],
    *,
    request_timeout: float = float("inf"),
    parts: Sequence[str] | int | None = None,
) -> Sink:
    """A sink, not yet open; `ConfigError` for an unknown type or bad options.

    Args:
        sink_type: the name of the entry point, or a class as `module:Class`.
        options: of the sink.
        request_timeout: seconds after which the worker gives a send up.
        parts: what each document is split into; None: it is sent as it is.
    """
    factory = find_sink(sink_type)
    try:
        sink = factory.from_options(options)
    except ConfigError:
        raise
    except ValidationError as error:
        raise ConfigError(_option_errors(sink_type, None, error)) from None
    except Exception as error:
        raise ConfigError(
            f'sink "{sink_type}" refused its options: {type(error).__name__}: {error}'
        ) from error
    return finished(sink_type, sink, request_timeout=request_timeout, parts=parts)


def finished(
    sink_type: str, sink: object, *, request_timeout: float = float("inf"), parts: Sequence[str] | int | None
) -> Sink:
    """The sink as a worker uses it, if it can be used; raises as `build_sink`."""
    if not isinstance(sink, Sink):
        raise ConfigError(
            f'sink "{sink_type}" is a {type(sink).__name__}, which is not a sink: '
            "it needs compares, open, send, abandon and close"
        )
    place = place_of(sink)
    if isinstance(place, Bounded) and place.write_timeout > request_timeout:
        raise ConfigError(
            f'sink "{sink_type}": a write may take {place.write_timeout:g} s, but request_timeout is '
            f"{request_timeout:g} s; raise request_timeout, or lower the timeout of the sink"
        )
    if parts is None:
        return sink
    if naming_of(sink) is not None:
        raise ConfigError(
            f'sink "{sink_type}": option "key": with `parts` there are no columns of keys, only {{id}}'
        )
    if isinstance(sink, Keyed) and (why := sink.cannot_hold(KeyType.TEXT)) is not None:
        raise ConfigError(f'sink "{sink_type}": the ids of `parts` are texts, and {why}')
    return PartsSink(sink, Parts(parts))


def _load(point: EntryPoint) -> SinkFactory:
    """The object that the entry point names."""
    try:
        factory = point.load()
    except ConfigError:
        raise
    except Exception as error:
        missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
        if point.value.startswith("pytube.") and missing and not missing.startswith("pytube"):
            raise ConfigError(
                f'sink "{point.name}" needs the package {missing}: {how_to_install(point.name)}'
            ) from None
        raise ConfigError(
            f'sink type "{point.name}" can\'t be loaded from {point.value}: {type(error).__name__}: {error}'
        ) from error
    return _checked(point.name, point.value, factory)


def _checked(sink_type: str, target: str, factory: object) -> SinkFactory:
    """The imported object, if it can build sinks."""
    if not callable(getattr(factory, "from_options", None)):
        raise ConfigError(f'sink type "{sink_type}": {target} has no from_options(options) to build it')
    checked: SinkFactory = factory  # type: ignore[assignment] # as far as that can be seen
    return checked


def _option_errors(sink: str, model: type[BaseModel] | None, error: ValidationError) -> str:
    """The faults of the options of `sink`, one clause per key, without their values."""
    fields = model.model_fields if model is not None else {}
    clauses = []
    for item in error.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in item["loc"])
        field = fields.get(str(item["loc"][0])) if item["loc"] else None
        expected = field.description if field is not None else None
        expected = expected or item["msg"].removeprefix("Input should be ")
        if not item["loc"]:  # of options that do not fit together
            clauses.append(item["msg"].removeprefix("Value error, "))
        elif item["type"] == "extra_forbidden":
            known = ", ".join(sorted(fields)) or "none"
            clauses.append(f'option "{key}" is unknown (known: {known})')
        elif item["type"] == "missing":
            clauses.append(f'option "{key}" is missing: expected {expected}')
        else:
            clauses.append(f'option "{key}": expected {expected}')
    return f'sink "{sink}": ' + "; ".join(clauses)
