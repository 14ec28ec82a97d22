"""Reads a schema of PGSync, and writes the documents of it as `[document.NAME]`.

The output is a draft that people read and complete: features of PGSync's schema that pytube does not have,
and differences between the documents, come back as sentences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pytube.config.names import quoted
from pytube.errors import UsageError

Section = dict[str, Any]
"""A section of TOML; sections within it are dicts or lists of dicts."""

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_JSON_STEP = re.compile(r"(#>>|->>|#>|->)")
_RESERVED = {
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization",
    "binary", "both", "case", "cast", "check", "collate", "collation", "column", "concurrently",
    "constraint", "create", "cross", "current_catalog", "current_date", "current_role", "current_schema",
    "current_time", "current_timestamp", "current_user", "default", "deferrable", "desc", "distinct",
    "do", "else", "end", "except", "false", "fetch", "for", "foreign", "freeze", "from", "full", "grant",
    "group", "having", "ilike", "in", "initially", "inner", "intersect", "into", "is", "isnull", "join",
    "lateral", "leading", "left", "like", "limit", "localtime", "localtimestamp", "natural", "not",
    "notnull", "null", "offset", "on", "only", "or", "order", "outer", "overlaps", "placing", "primary",
    "references", "returning", "right", "select", "session_user", "similar", "some", "symmetric",
    "system_user", "table", "tablesample", "then", "to", "trailing", "true", "union", "unique", "user",
    "using", "variadic", "verbose", "when", "where", "window", "with",
}  # fmt: skip
"""Names that SQL takes for a column in quotes only."""
_OF_SCHEMA = {
    "database",
    "index",
    "nodes",
    "setting",
    "mapping",
    "mappings",
    "pipeline",
    "plugins",
    "routing",
}
_OF_NODE = {
    "table", "schema", "columns", "label", "children", "relationship", "transform", "primary_key",
    "base_tables",
}  # fmt: skip
_OPTIONS = {"table", "fields", "where", "one", "many", "on", "tree", "through", "children"}
_NOT_OF_DOCUMENTS = {
    "plugins": "write each as a function, which `transforms` in this section names",
    "routing": "the sink routes by the id, or by the shard",
    "pipeline": "have the index name it: index.default_pipeline in `settings` of the sink",
}
"""Keys of a schema that pytube does not have, and what to do."""
_OF_TRANSFORM = {"rename", "concat", "replace", "move", "mapping"}


def from_pgsync(text: str) -> tuple[str, list[str]]:
    """The documents of a PGSync schema as TOML, and what to know before it is used, a sentence each.

    Args:
        text: the JSON of the schema file.

    Raises:
        UsageError: it is not a PGSync schema.
    """
    try:
        schemas = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the schema is not JSON: {error}") from None
    schemas = [schemas] if isinstance(schemas, dict) else schemas
    if not isinstance(schemas, list) or not schemas or not all(isinstance(one, dict) for one in schemas):
        raise UsageError("this is not a PGSync schema: expected an array of objects, each with nodes")
    documents: dict[str, Section] = {}
    tubes: dict[str, Section] = {}
    remarks: list[str] = []
    for schema in schemas:
        index = schema.get("index") or schema.get("database")
        if not isinstance(index, str) or not index:
            raise UsageError("this is not a PGSync schema: one of its objects has neither index nor database")
        name = _free(index, documents)
        translation = _Translation(name)
        documents[name] = translation.document(schema.get("nodes"))
        tubes[name] = translation.tube(schema, index)
        remarks += translation.remarks
    databases = sorted({str(schema["database"]) for schema in schemas if schema.get("database")})
    if len(databases) > 1:
        remarks.append(
            f"these are documents of {len(databases)} databases ({', '.join(databases)}): give each a file"
        )
    return _toml(documents, tubes), [*remarks, *_differences(documents.values())]


def _free(name: str, taken: Mapping[str, Any]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


def _differences(documents: Iterable[Section]) -> Iterator[str]:
    """How documents differ from PGSync's, wherever a part is affected."""
    sections = [section for document in documents for section in _all_sections(document)]
    if any("many" in section for section in sections):
        yield "an array without rows is [] here; PGSync sends null"
        yield "arrays are in the order of the primary key here, or of order_by; PGSync's have no certain one"
    yield "there is no field _meta, in which PGSync keeps keys of the rows of a document"
    yield (
        "a document is named by its key, one of several columns by a JSON array of them; PGSync joins these "
        'by |, as key = "{tenant_id}|{id}" in the section of the sink does'
    )


def _all_sections(section: Section) -> Iterator[Section]:
    yield section
    for value in section.values():
        if isinstance(value, dict) and ("one" in value or "many" in value):
            yield from _all_sections(value)


# --- one schema ------------------------------------------------------------------------------------


class _Translation:
    """One object of the schema file: a tree of nodes, and where its documents go."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.remarks: list[str] = []
        self._properties: Section = {}
        """Of the index's mapping, by the fields of the document."""

    def document(self, node: Any) -> Section:
        if not isinstance(node, dict):
            raise UsageError(
                f"{self._name}: nodes is not an object with a table; if it is an array, as in PGSync 1, "
                "write its only element"
            )
        path = f"document.{_key(self._name)}"
        section: Section = {"table": self._table(node, path), "fields": []}
        return self._complete(section, node, path, self._properties)

    def tube(self, schema: Mapping[str, Any], index: str) -> Section:
        self._unknown(schema, _OF_SCHEMA, f"tube.{_key(self._name)}")
        sink: Section = {"type": "opensearch", "url": "${OPENSEARCH_URL}", "index": index, "key": "{id}"}
        if setting := schema.get("setting"):
            sink["settings"] = {"index": setting}
        mappings = schema.get("mappings") or {}
        if mapping := schema.get("mapping"):
            mappings = mapping if "dynamic_templates" in mapping else {"properties": mapping}
        elif not mappings and self._properties:
            mappings = {"properties": self._properties}
        if mappings:
            sink["mappings"] = mappings
        for key, remedy in _NOT_OF_DOCUMENTS.items():
            if schema.get(key):
                self._say(
                    f"tube.{_key(self._name)}", f"{key} {json.dumps(schema[key])} is not translated; {remedy}"
                )
        result: Section = _escaped(sink)
        return result

    def _complete(self, section: Section, node: Mapping[str, Any], path: str, properties: Section) -> Section:
        """Add fields and children of a node; and to `properties` its part of the index's mapping."""
        self._unknown(node, _OF_NODE, path)
        transform = _object(node.get("transform"))
        self._unknown(transform, _OF_TRANSFORM, f"{path}: transform")
        renames = {old: new for old, new in _object(transform.get("rename")).items() if isinstance(new, str)}
        fields = self._fields(node, path, renames)
        children: dict[str, Mapping[str, Any]] = {}
        for child in map(_object, node.get("children") or []):
            label = str(child.get("label") or child.get("table"))
            children[self._free_label(renames.pop(label, label), {*children}, path)] = child
        for label in children.keys() & fields.keys():
            self._say(path, f"the column {label} is left out, as in PGSync: a child has that name, too")
            del fields[label]
        self._concat(fields, transform.get("concat"), path)
        for old in renames:
            self._say(path, f"rename of {old} does nothing: no such column is listed")
        self._rest_of_transform(transform, path, properties)
        section["fields"] = [_aliased(expression, name) for name, expression in fields.items()]
        for label, child in children.items():
            below: Section = {}
            section[label] = self._child(child, f"{path}.{_key(label)}", below)
            if below:
                properties[label] = {"properties": below}
        return section

    def _free_label(self, label: str, taken: set[str], path: str) -> str:
        """A name that the section of a child can have."""
        if label in taken:
            self._say(path, f"two children have the label {label}; as in PGSync the last one counts")
        if label not in _OPTIONS:
            return label
        self._say(path, f"a section can't be called {label}, which is an option, and is called {label}_")
        return f"{label}_"

    def _fields(self, node: Mapping[str, Any], path: str, renames: dict[str, str]) -> dict[str, str]:
        """Expressions by the names of fields; takes away the renames that it knows."""
        columns = [column for column in node.get("columns") or [] if isinstance(column, str)]
        if not columns:
            if renames:
                self._say(path, "all columns are sent as they are called; to rename some, list all in fields")
                renames.clear()
            return {"*": "*"}
        fields = {}
        for column in columns:
            name, expression = _column(column)
            fields[renames.get(name, name)] = expression
        for column in columns:
            renames.pop(_column(column)[0], None)
        return fields

    def _child(self, node: Mapping[str, Any], path: str, properties: Section) -> Section:
        relationship = _object(node.get("relationship"))
        kind, variant = relationship.get("type"), relationship.get("variant")
        if kind not in ("one_to_one", "one_to_many") or variant not in ("object", "scalar"):
            raise UsageError(
                f"{path}: relationship needs a type, one_to_one or one_to_many, and a variant, object "
                "or scalar"
            )
        through = relationship.get("through_tables") or []
        section: Section = {"one" if kind == "one_to_one" else "many": self._table(node, path)}
        if through:
            section["through"] = self._through(str(through[0]), str(node.get("schema") or "public"))
            if kind == "one_to_one":
                self._say(path, f"is an object here, or null; PGSync makes an array of all in {through[0]}")
        if key := relationship.get("foreign_key"):
            self._join(section, _object(key), path)
        if variant == "scalar":
            return self._scalar(section, node, path)
        return self._complete(section, node, path, properties)

    def _scalar(self, section: Section, node: Mapping[str, Any], path: str) -> Section:
        columns = [column for column in node.get("columns") or [] if isinstance(column, str)]
        if not columns:
            raise UsageError(f"{path}: a scalar needs its column")
        section["value" if "one" in section else "list"] = _column(columns[0])[1]
        if len(columns) > 1:
            self._say(path, f"a scalar has one column, {columns[0]}; left out: {', '.join(columns[1:])}")
        if node.get("children"):
            self._say(path, "a scalar has no children; these are left out")
        self._rest_of_transform(_object(node.get("transform")), path, {})
        return section

    def _join(self, section: Section, key: Mapping[str, Any], path: str) -> None:
        parent, child = (_names(key.get(side)) for side in ("parent", "child"))
        if len(parent) != len(child) or not parent:
            raise UsageError(f"{path}: foreign_key needs as many columns of the parent as of the child")
        if "through" in section:
            self._say(
                path,
                "foreign_key is not translated: beside a join table, `by` names the columns of its two "
                "foreign keys; `on` joins without such",
            )
            return
        if (sorted(parent), sorted(child)) != (parent, child) and len(parent) > 1:
            self._say(path, "columns are joined in the order of the schema; PGSync sorts each side first")
        section["on"] = dict(zip(parent, child, strict=True))

    def _concat(self, fields: dict[str, str], concats: Any, path: str) -> None:
        for concat in concats if isinstance(concats, list) else [concats] if concats else []:
            parts = [
                fields.get(str(name)) or _literal(str(name)) for name in _object(concat).get("columns") or []
            ]
            delimiter = _literal(str(concat.get("delimiter", "")))
            fields[str(concat.get("destination"))] = f"concat_ws({', '.join([delimiter, *parts])})"
            self._say(path, f"{concat.get('destination')} skips nulls; PGSync skips 0, false and '' too")

    def _rest_of_transform(self, transform: Mapping[str, Any], path: str, properties: Section) -> None:
        for name in ("replace", "move"):
            if transform.get(name):
                remedy = (
                    "replace(column, 'old', 'new') AS column in fields" if name == "replace" else "a query"
                )
                self._say(path, f"transform.{name} is not translated; write {remedy}")
        for name, mapping in _object(transform.get("mapping")).items():
            properties[name] = mapping

    # --- tables ---------------------------------------------------------------------------

    def _table(self, node: Mapping[str, Any], path: str) -> str:
        table = node.get("table")
        if not isinstance(table, str) or not table:
            raise UsageError(f"{path}: names no table")
        if node.get("base_tables"):
            self._say(
                path,
                f"{table} is a view, whose changes can't be captured: declare its tables "
                f"({', '.join(map(str, node['base_tables']))}), or write a query",
            )
        elif node.get("primary_key"):
            self._say(path, "primary_key is left out: documents and rows are named by the table's own")
        return f"{_quoted(str(node.get('schema') or 'public'))}.{_quoted(table)}"

    def _through(self, table: str, schema: str) -> str:
        of_its_own, _, name = table.rpartition(".")
        return f"{_quoted(of_its_own or schema)}.{_quoted(name)}"

    # --- sentences ------------------------------------------------------------------------

    def _unknown(self, found: Mapping[str, Any], known: set[str], path: str) -> None:
        for key in sorted(found.keys() - known):
            self._say(path, f"{key} is not known, and is left out")

    def _say(self, path: str, sentence: str) -> None:
        self.remarks.append(f"{path}: {sentence}")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _names(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(one) for one in value or []]


# --- SQL -------------------------------------------------------------------------------------------


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) and name not in _RESERVED else quoted(name)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _column(text: str) -> tuple[str, str]:
    """The name of the field that a column of PGSync becomes, and its expression.

    A column may go into JSON: `data->a->>b` becomes the field `data_a_b`.
    """
    column, *steps = _JSON_STEP.split(text)
    names, expression = [column], _quoted(column)
    for operator, operand in zip(steps[::2], steps[1::2], strict=True):
        names.append(operand.replace("{", "").replace("}", ""))
        expression += f" {operator} {operand if operand.isdigit() else _literal(operand)}"
    return "_".join(names), expression


def _aliased(expression: str, name: str) -> str:
    return expression if expression == _quoted(name) or name == "*" else f"{expression} AS {_quoted(name)}"


# --- TOML ------------------------------------------------------------------------------------------


def _escaped(value: Any) -> Any:
    """The value, whose texts mean themselves: `${` is not a variable of pytube, except in the URL."""
    if isinstance(value, dict):
        return {key: one if key == "url" else _escaped(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    return value.replace("${", "$${") if isinstance(value, str) else value


def _toml(documents: Mapping[str, Section], tubes: Mapping[str, Section]) -> str:
    blocks: list[str] = []
    for name, document in documents.items():
        blocks += _blocks(["document", name], _escaped(document))
        blocks += _blocks(["tube", name, "sink"], tubes[name])
    return "\n".join(blocks)


def _blocks(path: Sequence[str], section: Section) -> Iterator[str]:
    """The section as text, then those within it."""
    below = {key: value for key, value in section.items() if isinstance(value, dict) and _is_child(value)}
    lines = [f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in section.items() if key not in below]
    yield "\n".join(lines) + "\n"
    for key, value in below.items():
        yield from _blocks([*path, key], value)


def _is_child(value: Section) -> bool:
    return isinstance(value.get("one"), str) or isinstance(value.get("many"), str)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items())
        return f"{{ {inner} }}" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(one) for one in value if one is not None) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
