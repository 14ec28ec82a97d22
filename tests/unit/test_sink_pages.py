"""The pages of single sinks name every option with its default, and their examples are understood."""

from __future__ import annotations

import json
import tomllib

import pytest
from pydantic_core import PydanticUndefined

from pytube.config import parse
from pytube.sinks.kafka import KafkaOptions, KafkaSink
from pytube.sinks.postgres import PostgresSink
from pytube.sinks.postgres_table import PostgresOptions
from pytube.sinks.registry import SinkOptions
from tests.docs.pages import BY_NAME, table_rows

PAGES: dict[str, tuple[type[SinkOptions], type[PostgresSink | KafkaSink]]] = {
    "docs/sinks/postgres.md": (PostgresOptions, PostgresSink),
    "docs/sinks/kafka.md": (KafkaOptions, KafkaSink),
}


@pytest.mark.parametrize("page", PAGES)
def test_every_option_is_documented_with_its_default(page: str) -> None:
    documented = {row[0].strip("`"): row[1] for row in table_rows(BY_NAME[page].section("Options"))}
    fields = {field.alias or name: field for name, field in PAGES[page][0].model_fields.items()}
    assert set(documented) == set(fields)
    for name, field in fields.items():
        if field.is_required():
            assert documented[name] == ""
        elif field.default is None or field.default is PydanticUndefined:
            assert documented[name] in ("none", "`TABLE_pytube`")
        else:
            assert documented[name] == f"`{json.dumps(field.default)}`"


@pytest.mark.parametrize("page", PAGES)
def test_the_example_is_understood(page: str) -> None:
    (block,) = BY_NAME[page].blocks("toml")
    options = parse(block.text, environment={"KAFKA_PASSWORD": "x"}).tubes["es-live"].sink.options
    if "client_options" in options:  # a file that this machine does not have
        del options["client_options"]["ssl.ca.location"]
    sink = PAGES[page][1]
    assert isinstance(sink.from_options(options), sink)
    assert tomllib.loads(block.text)["tube"]["es-live"]["sink"]["type"] in page
