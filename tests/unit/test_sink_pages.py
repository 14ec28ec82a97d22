"""The pages of single sinks name every option with its default, and their examples are understood."""

from __future__ import annotations

import json
import re

import pytest
from pydantic.fields import FieldInfo

from pytube.config import parse
from pytube.sinks import build_sink
from pytube.sinks.kafka import KafkaOptions
from pytube.sinks.opensearch.client import OpenSearchOptions
from pytube.sinks.postgres_table import PostgresOptions
from pytube.sinks.redis_servers import RedisOptions
from pytube.sinks.registry import SinkOptions
from pytube.sinks.webhook import WebhookOptions
from tests.docs.pages import BY_NAME, table_rows

OPTIONS: dict[str, type[SinkOptions]] = {
    "kafka": KafkaOptions,
    "opensearch": OpenSearchOptions,
    "postgres": PostgresOptions,
    "redis": RedisOptions,
    "webhook": WebhookOptions,
}
IN_WORDS = {"opensearch": {"ca_file": "the system's"}, "postgres": {"stamps": "`TABLE_pytube`"}}
sinks = pytest.mark.parametrize("sink", OPTIONS)


@sinks
def test_every_option_is_documented_with_its_default(sink: str) -> None:
    section = "Settings" if sink in ("redis", "webhook") else "Options"
    documented = {
        name: row[1]
        for row in table_rows(BY_NAME[f"docs/sinks/{sink}.md"].section(section))
        for name in re.findall(r"`(\w+)`", row[0])
    }
    fields = OPTIONS[sink].model_fields
    assert documented == {
        field.alias or name: default_of(sink, name, field) for name, field in fields.items()
    }


def default_of(sink: str, name: str, field: FieldInfo) -> str:
    """As a page is to write it."""
    if field.is_required():
        return ""
    default = field.get_default(call_default_factory=True, validated_data={})
    if name in IN_WORDS.get(sink, {}):
        return IN_WORDS[sink][name]
    return "none" if default is None or default in ((), {}) else f"`{json.dumps(default)}`"


@sinks
def test_the_example_is_understood(sink: str) -> None:
    (block,) = BY_NAME[f"docs/sinks/{sink}.md"].blocks("toml")
    text = block.text if "[postgres]" in block.text else f'[postgres]\ndsn = ""\n{block.text}'
    given = parse(text, environment={"KAFKA_PASSWORD": "x"}).tubes["es-live"].sink
    if "client_options" in given.options:  # a file that this machine does not have
        del given.options["client_options"]["ssl.ca.location"]
    assert given.type == sink
    build_sink(given.type, given.options)
