"""No secret of a configuration is shown."""

import json

from pytube.config import masked, parse

TEXT = """
[postgres]
dsn = "postgresql://app:hunter2@db/app"
[kafka]
bootstrap_servers = "k:9092"
options = { "sasl.password" = "hunter2", "whatever" = "hunter2" }
[tube.t.sink]
type = "webhook"
url = "https://app:hunter2@host/path?x=1"
api_key = "hunter2"
path = "${FROM_ENVIRONMENT}"
client_options = { "ssl.key.pem" = "hunter2", "linger.ms" = 5 }
headers = { Authorization = "hunter2", Accept = "text/plain" }
also = [ "http://a:hunter2@b/" ]
plain = "shown"
"""
CONFIG = parse(TEXT, environment={"FROM_ENVIRONMENT": "hunter2"})


def test_options_of_an_outbox_are_masked() -> None:
    text = TEXT + '[outbox.o.kafka_options]\n"sasl.password" = "hunter2"\n"linger.ms" = 5\n'
    config = parse(text, environment={"FROM_ENVIRONMENT": "x"})
    shown = masked(config)
    assert shown["outbox"]["o"]["kafka_options"] == {"sasl.password": "********", "linger.ms": "********"}
    assert "hunter2" not in repr(config)


def test_shown_masked() -> None:
    shown = masked(CONFIG)
    assert "hunter2" not in json.dumps(shown)
    assert shown["postgres"] == {
        "dsn": "********",
        "schema": "tube",
        "answer_timeout": 15.0,
        "pool_size": 6,
    }
    assert shown["kafka"]["options"] == {"sasl.password": "********", "whatever": "********"}
    options = shown["tube"]["t"]["sink"]["options"]
    assert options["plain"] == "shown"
    assert options["url"] == "https://********@host/path?x=1"
    assert options["client_options"] == {"ssl.key.pem": "********", "linger.ms": 5}
    assert options["headers"] == {"Authorization": "********", "Accept": "text/plain"}


def test_not_in_its_text() -> None:
    assert "hunter2" not in repr(CONFIG)
    assert "hunter2" not in str(CONFIG)
