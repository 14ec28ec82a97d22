"""Schemas of PGSync become documents, and what can't is said."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pytube.cli.document import from_pgsync as command
from pytube.config import parse
from pytube.documents.pgsync import from_pgsync
from pytube.errors import UsageError
from pytube.sinks import build_sink

Node = dict[str, Any]
MUSEUM: Node = {
    "database": "museum",
    "index": "exhibits",
    "nodes": {
        "table": "exhibit",
        "columns": ["id", "title", "order"],
        "transform": {"rename": {"title": "name"}},
        "children": [
            {
                "table": "room",
                "columns": ["number", "floor"],
                "label": "place",
                "relationship": {"type": "one_to_one", "variant": "object"},
                "children": [
                    {
                        "table": "Wing",
                        "schema": "building",
                        "columns": ["Name"],
                        "label": "wing",
                        "relationship": {
                            "type": "one_to_one",
                            "variant": "object",
                            "foreign_key": {"parent": ["wing_id"], "child": ["id"]},
                        },
                    }
                ],
            },
            {
                "table": "artist",
                "columns": ["full_name"],
                "label": "artists",
                "relationship": {
                    "type": "one_to_many",
                    "variant": "object",
                    "through_tables": ["exhibit_artist"],
                },
            },
            {
                "table": "keyword",
                "columns": ["word"],
                "label": "keywords",
                "relationship": {"type": "one_to_many", "variant": "scalar"},
            },
            {
                "table": "insurance",
                "columns": ["sum"],
                "label": "insured",
                "relationship": {"type": "one_to_one", "variant": "scalar"},
            },
        ],
    },
}
OF_EACH = 4
"""Sentences that each schema with a to-many relation gets."""


def node(**more: Any) -> Node:
    return {"table": "patient", "columns": ["id", "name"], **more}


def child(label: str = "visits", kind: str = "one_to_many", variant: str = "object", **more: Any) -> Node:
    relationship = {"type": kind, "variant": variant, **more.pop("relationship", {})}
    return {"table": "visit", "columns": ["day"], "label": label, "relationship": relationship, **more}


def translated(nodes: Any, **more: Any) -> tuple[Node, Node, list[str]]:
    """The section of the only document, that of its sink, and what is said of this schema alone."""
    text, remarks = from_pgsync(json.dumps([{"database": "clinic", "nodes": nodes, **more}]))
    read = tomllib.loads(text)
    of_all = from_pgsync(json.dumps([{"database": "clinic", "nodes": node(children=[child()])}]))[1]
    return read["document"]["clinic"], read["tube"]["clinic"]["sink"], [r for r in remarks if r not in of_all]


def test_a_tree_of_tables_becomes_a_tree_of_sections() -> None:
    text, remarks = from_pgsync(json.dumps([MUSEUM]))
    read = tomllib.loads(text)
    assert read["document"] == {
        "exhibits": {
            "table": "public.exhibit",
            "fields": ["id", "title AS name", '"order"'],
            "place": {
                "one": "public.room",
                "fields": ["number", "floor"],
                "wing": {"one": 'building."Wing"', "on": {"wing_id": "id"}, "fields": ['"Name"']},
            },
            "artists": {"many": "public.artist", "through": "public.exhibit_artist", "fields": ["full_name"]},
            "keywords": {"many": "public.keyword", "list": "word"},
            "insured": {"one": "public.insurance", "value": "sum"},
        }
    }
    assert read["tube"]["exhibits"]["sink"] == {
        "type": "opensearch",
        "url": "${OPENSEARCH_URL}",
        "index": "exhibits",
        "key": "{id}",
    }
    assert len(remarks) == OF_EACH


def test_the_text_is_a_configuration() -> None:
    text, _ = from_pgsync(json.dumps([MUSEUM]))
    dsn = '[postgres]\ndsn = "postgresql://localhost/museum"\n'
    config = parse(dsn + text, environment={"OPENSEARCH_URL": "http://localhost:9200"})
    section = config.documents["exhibits"]
    assert list(section.children) == ["place", "artists", "keywords", "insured"]
    assert section.children["place"].children["wing"].table == 'building."Wing"'
    sink = config.tube("exhibits").sink
    build_sink(sink.type, sink.options)


def test_sections_stand_in_the_order_of_the_schema() -> None:
    text, _ = from_pgsync(json.dumps([MUSEUM]))
    assert [line for line in text.splitlines() if line.startswith("[")] == [
        "[document.exhibits]",
        "[document.exhibits.place]",
        "[document.exhibits.place.wing]",
        "[document.exhibits.artists]",
        "[document.exhibits.keywords]",
        "[document.exhibits.insured]",
        "[tube.exhibits.sink]",
    ]


def test_what_differs_in_each_document_is_said_once() -> None:
    _, remarks = from_pgsync(json.dumps([MUSEUM, {**MUSEUM, "index": "other"}]))
    assert [word for word in ("null", "order", "_meta", "|") if sum(word in r for r in remarks) == 1] == [
        "null",
        "order",
        "_meta",
        "|",
    ]


def test_without_arrays_nothing_is_said_of_them() -> None:
    _, remarks = from_pgsync(json.dumps([{"index": "plain", "nodes": node()}]))
    assert len(remarks) == OF_EACH - 2


def test_all_columns_is_a_star() -> None:
    document, _, remarks = translated({"table": "patient"})
    assert document["fields"] == ["*"]
    assert remarks == []
    document, _, remarks = translated({"table": "patient", "transform": {"rename": {"name": "who"}}})
    assert document["fields"] == ["*"]
    assert remarks == [
        "document.clinic: all columns are sent as they are called; to rename some, list all in fields"
    ]


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("data->name", "data -> 'name' AS data_name"),
        ("data->0->>it's", "data -> 0 ->> 'it''s' AS \"data_0_it's\""),
        ("data#>{a,b}", "data #> '{a,b}' AS \"data_a,b\""),
        ("user", '"user"'),
        ('odd"one', '"odd""one"'),
    ],
)
def test_a_column_becomes_an_expression(column: str, field: str) -> None:
    document, _, _ = translated({"table": "patient", "columns": [column]})
    assert document["fields"] == [field]


def test_a_rename_of_a_child_renames_its_section() -> None:
    transform = {"rename": {"visits": "came", "name": "Who", "gone": "x"}}
    document, _, remarks = translated(node(transform=transform, children=[child()]))
    assert document["came"] == {"many": "public.visit", "fields": ["day"]}
    assert document["fields"] == ["id", 'name AS "Who"']
    assert remarks == ["document.clinic: rename of gone does nothing: no such column is listed"]


def test_concat_joins_fields_by_their_new_names_and_texts() -> None:
    transform = {
        "rename": {"name": "who"},
        "concat": {"columns": ["who", "id", "it's"], "destination": "label", "delimiter": "-"},
    }
    document, _, (remark,) = translated(node(transform=transform))
    assert document["fields"] == ["id", "name AS who", "concat_ws('-', name, id, 'it''s') AS label"]
    assert remark == "document.clinic: label skips nulls; PGSync skips 0, false and '' too"


def test_other_transforms_are_named_with_their_place() -> None:
    transform = {"replace": {"day": {"-": "/"}}, "move": {"column": "day"}, "upper": True}
    _, _, remarks = translated(node(children=[child(transform=transform)]))
    assert [remark.partition(";")[0] for remark in remarks] == [
        "document.clinic.visits: transform: upper is not known, and is left out",
        "document.clinic.visits: transform.replace is not translated",
        "document.clinic.visits: transform.move is not translated",
    ]


def test_mappings_and_settings_go_to_the_sink() -> None:
    transform = {"mapping": {"day": {"type": "date"}}}
    nodes = node(transform={"mapping": {"name": {"type": "keyword"}}}, children=[child(transform=transform)])
    _, sink, remarks = translated(nodes, setting={"analysis": {"filter": {"f": {"pattern": "${x}"}}}})
    assert sink["mappings"] == {
        "properties": {"name": {"type": "keyword"}, "visits": {"properties": {"day": {"type": "date"}}}}
    }
    assert sink["settings"] == {"index": {"analysis": {"filter": {"f": {"pattern": "$${x}"}}}}}
    assert remarks == []


@pytest.mark.parametrize(
    ("given", "mappings"),
    [
        ({"mapping": {"id": {"type": "long"}}}, {"properties": {"id": {"type": "long"}}}),
        ({"mapping": {"dynamic_templates": [{"a": {}}]}}, {"dynamic_templates": [{"a": {}}]}),
        ({"mappings": {"dynamic": False}}, {"dynamic": False}),
    ],
)
def test_a_mapping_of_the_schema_is_that_of_the_index(given: Node, mappings: Node) -> None:
    _, sink, _ = translated(node(transform={"mapping": {"name": {"type": "text"}}}), **given)
    assert sink["mappings"] == mappings


def test_what_is_no_part_of_a_document_is_named() -> None:
    _, _, remarks = translated(node(), plugins=["Hide"], routing="name", pipeline="geo", speed=9)
    assert [remark.partition(";")[0] for remark in remarks] == [
        "tube.clinic: speed is not known, and is left out",
        'tube.clinic: plugins ["Hide"] is not translated',
        'tube.clinic: routing "name" is not translated',
        'tube.clinic: pipeline "geo" is not translated',
    ]


def test_views_are_named_with_their_tables() -> None:
    view = child(base_tables=["visit_log", "doctor"], primary_key=["id"])
    document, _, (remark,) = translated(node(children=[view]))
    assert document["visits"]["many"] == "public.visit"
    assert remark == (
        "document.clinic.visits: visit is a view, whose changes can't be captured: declare its tables "
        "(visit_log, doctor), or write a query"
    )
    _, _, (remark,) = translated(node(primary_key=["id"]))
    assert remark.startswith("document.clinic: primary_key is left out")


def test_join_tables_of_other_schemas() -> None:
    relationship = {
        "through_tables": ["ward.patient_visit"],
        "foreign_key": {"parent": ["a"], "child": ["b"]},
    }
    document, _, remarks = translated(node(children=[child(relationship=relationship)]))
    assert document["visits"] == {"many": "public.visit", "through": "ward.patient_visit", "fields": ["day"]}
    assert [remark.partition(":")[2].split(",")[0] for remark in remarks] == [
        " foreign_key is not translated: beside a join table"
    ]
    single = child(kind="one_to_one", relationship={"through_tables": ["patient_visit"]}, schema="ward")
    document, _, (remark,) = translated(node(children=[single]))
    assert document["visits"]["through"] == "ward.patient_visit"
    assert "PGSync makes an array" in remark


def test_several_columns_are_joined_in_order() -> None:
    key = {"parent": ["tenant", "doctor"], "child": ["tenant", "id"]}
    document, _, (remark,) = translated(node(children=[child(relationship={"foreign_key": key})]))
    assert document["visits"]["on"] == {"tenant": "tenant", "doctor": "id"}
    assert remark.startswith("document.clinic.visits: columns are joined in the order of the schema")


def test_names_that_meet() -> None:
    document, _, remarks = translated(
        node(children=[child("name"), child("fields"), child("name", "one_to_one")])
    )
    assert document["fields"] == ["id"]
    assert document["name"] == {"one": "public.visit", "fields": ["day"]}
    assert document["fields_"]["many"] == "public.visit"
    assert len(remarks) == 3


def test_a_scalar_takes_its_first_column() -> None:
    scalar = child(variant="scalar", columns=["day", "hour"], children=[child()])
    document, _, remarks = translated(node(children=[scalar]))
    assert document["visits"] == {"many": "public.visit", "list": "day"}
    assert [remark.partition(": ")[2] for remark in remarks] == [
        "a scalar has one column, day; left out: hour",
        "a scalar has no children; these are left out",
    ]


def test_one_index_twice_and_two_databases() -> None:
    schemas = [{"database": name, "index": "a b", "nodes": node()} for name in ("one", "two")]
    text, remarks = from_pgsync(json.dumps(schemas))
    assert list(tomllib.loads(text)["document"]) == ["a b", "a b_2"]
    assert remarks[0] == "these are documents of 2 databases (one, two): give each a file"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "expected an array of objects"),
        ('[{"nodes": {}}]', "neither index nor database"),
        ('[{"index": "a", "nodes": [{"table": "b"}]}]', "nodes is not an object"),
        ('[{"index": "a", "nodes": {"columns": []}}]', "document.a: names no table"),
        (
            json.dumps({"index": "a", "nodes": node(children=[{"table": "b"}])}),
            "document.a.b: relationship needs",
        ),
        (
            json.dumps({"index": "a", "nodes": node(children=[child(variant="scalar", columns=[])])}),
            "document.a.visits: a scalar needs its column",
        ),
        (
            json.dumps(
                {
                    "index": "a",
                    "nodes": node(
                        children=[child(relationship={"foreign_key": {"parent": ["a"], "child": []}})]
                    ),
                }
            ),
            "foreign_key needs as many columns",
        ),
    ],
)
def test_what_is_no_schema_is_refused(schema: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        from_pgsync(schema)


def test_the_command_writes_toml_to_stdout_and_remarks_to_stderr(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps([MUSEUM]))
    done = CliRunner().invoke(command, [str(file)])
    assert done.exit_code == 0
    text, remarks = from_pgsync(file.read_text())
    assert done.stdout == text
    assert done.stderr.splitlines() == remarks


def test_the_command_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(tmp_path / "none.json")])
    assert isinstance(done.exception, UsageError)
    assert "none.json: can't be read: No such file" in str(done.exception)
