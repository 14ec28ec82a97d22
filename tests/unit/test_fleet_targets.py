"""Whose heartbeats are listened to for a database: those of its own workers, as far as that is known."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from pytube.cli.context import Database
from pytube.cli.workers import targets
from pytube.config import Config, parse
from pytube.db.connect import database_of
from pytube.errors import ConfigError

DSN = "postgresql://worker:secret@db:5432/shop"
CONFIG = f"""
[postgres]
dsn = "{DSN}"
[kafka]
bootstrap_servers = "kafka:9092"
"""
HOSTS = f"""
[postgres.hosts.a]
dsn = "{DSN}"
[postgres.hosts.b]
dsn = "postgresql://other/shop"
[kafka]
bootstrap_servers = "kafka:9092"
"""


def config_of(dsn: str, text: str = CONFIG, schema: str = "tube") -> tuple[Config | None, str]:
    """The configuration whose broker is listened to for a database, and why there is none."""
    (found,) = targets([Database(SecretStr(dsn), schema)], parse(text, environment={}))
    return found.config, found.why_deaf


@pytest.mark.parametrize(
    "dsn", [DSN, "host=db dbname=shop user=looker", "postgresql://looker@db/shop?application_name=mine"]
)
def test_the_database_of_the_configuration_may_be_named_in_other_words(dsn: str) -> None:
    assert config_of(dsn)[0] is not None


@pytest.mark.parametrize(
    ("dsn", "schema"),
    [
        ("postgresql://staging:5432/shop", "tube"),
        ("postgresql://db:5433/shop", "tube"),
        ("postgresql://db/shop2", "tube"),
        (DSN, "tube2"),
    ],
)
def test_for_another_database_the_broker_of_the_configuration_is_left_out(dsn: str, schema: str) -> None:
    config, why = config_of(dsn, schema=schema)
    assert config is None
    assert "names another database or schema than the configuration" in why


def test_a_database_that_is_that_of_a_host_has_that_host_s_configuration() -> None:
    config, _ = config_of("postgresql://looker@other/shop", HOSTS)
    assert config is not None
    assert config.worker.installation == "default@b"
    assert config_of("postgresql://third/shop", HOSTS)[0] is None


def test_the_environment_has_a_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert database_of("host=db dbname=shop") == database_of(DSN)
    monkeypatch.setenv("PGPORT", "5433")
    assert database_of("host=db dbname=shop") != database_of(DSN)


def test_a_connection_string_that_is_none_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        database_of("password=hush host")
    assert "hush" not in str(refused.value)
