"""The options of the sink `webhook`, its messages, and what it makes of Retry-After."""

from __future__ import annotations

import base64
import json

import pytest

from pytube.config import parse as parse_config
from pytube.config.loader import masked
from pytube.errors import ConfigError
from pytube.model import Documents, Ok, Reject, Retry, Stale, Token
from pytube.sinks.http import is_allowed
from pytube.sinks.webhook import (
    LONGEST_REASON,
    WebhookOptions,
    WebhookSink,
    key_of,
    lines,
    results_of,
    signature,
    wait_of,
)
from pytube.testing import document
from tests.docs.pages import BY_NAME

CANARY = "canary-5e1f"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "http://x/"}, "allow_plain_http"),
        ({"url": "ftp://x/", "allow_plain_http": True}, 'expected "https'),
        ({"url": f"https://me:{CANARY}@x/"}, 'option "url"'),
        ({"url": f"https://x/{CANARY}\r\nHost: y"}, 'option "url"'),
        ({"url": f"https://x/{CANARY}#top"}, 'option "url"'),
        ({"secret": CANARY}, 'option "secret"'),
        ({"secret": f"whsec_{CANARY}"}, 'option "secret"'),
        ({"old_secret": "whsec_c2hvcnQ="}, 'option "old_secret"'),
        ({"headers": {"Authorization": f"{CANARY}\r\nX: y"}}, 'option "headers"'),
        ({"headers": {"Host": CANARY}}, 'option "headers"'),
        ({"headers": {"Webhook-Id": CANARY}}, 'option "headers"'),
        ({"headers": {"x y": CANARY}}, 'option "headers"'),
        ({"allowed_networks": ["10.0.0.1/8"]}, 'option "allowed_networks'),
        ({"format": CANARY}, 'option "format"'),
    ],
)
def test_bad_options(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WebhookOptions.parse("webhook", {"url": "https://hook.example/x", **options})
    assert said in str(caught.value)
    assert CANARY not in str(caught.value)


async def test_files_that_are_not_there() -> None:
    options = {"url": "https://hook.example/x", "ca_file": "/nowhere.pem"}
    with pytest.raises(ConfigError, match="ca_file"):
        await WebhookSink.from_options(options).open()


def test_no_secret_is_shown() -> None:
    secret = "whsec_" + base64.b64encode(CANARY.encode() * 3).decode()
    given = {"url": f"https://x/{CANARY}", "secret": secret, "headers": {"X-Api-Key": CANARY}}
    assert CANARY not in repr(WebhookOptions.parse("webhook", given))
    text = f"""
        [postgres]
        dsn = "x"
        [tube.t.sink]
        type = "webhook"
        url = "https://x/"
        secret = "{secret}"
        headers = {{ X-Api-Key = "{CANARY}" }}
        """
    shown = str(masked(parse_config(text)))
    assert CANARY not in shown
    assert secret not in shown


def test_the_signature_of_the_specification() -> None:
    """The example of Standard Webhooks' own libraries."""
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    assert (
        signature([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        ("99999999", 3600.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 60.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("soon", None),
        ("-5", None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert wait_of(text, 40.0) == seconds


def test_public_addresses_are_allowed() -> None:
    assert is_allowed("93.184.216.34", ())
    assert is_allowed("2606:2800:220:1:248:1893:25c8:1946", ())


def test_the_line_of_the_page_is_what_is_sent() -> None:
    shown = BY_NAME["docs/sinks/webhook.md"].blocks("json")[0].text
    body = json.dumps({"id": 7, "name": "Ada"}, separators=(",", ":")).encode()
    (sent,) = lines("es-live", [document((3, 7), body, token=(1795253820, 91), seq=4711)])
    assert sent.decode() == shown.strip()


def test_the_lines_of_a_worker_s_documents() -> None:
    documents = Documents(Token(1760, 91), 4711)
    documents.add(3, [7, 8, 9], [b'{"a": 1}', None, b'{\n "a":\r\n 2}'])
    documents.add(4, ["x"], [b""])
    documents.add(3, ['it\'s "quoted"'], [b"{}"])
    together = lines("t", documents)
    assert together == [line for one in documents for line in lines("t", [one])]
    assert not any(line.count(b"\n") or line.count(b"\r") for line in together)
    assert [json.loads(line)["doc"] for line in together if b'""' not in line and b":}" not in line]
    assert [(one["shard"], one["id"], one["op"]) for one in map(json.loads, together[:3])] == [
        (3, 7, "upsert"),
        (3, 8, "delete"),
        (3, 9, "upsert"),
    ]
    assert json.loads(together[2])["doc"] == {"a": 2}
    assert json.loads(together[4])["id"] == 'it\'s "quoted"'


def test_the_answer_of_the_page_is_understood() -> None:
    shown = BY_NAME["docs/sinks/webhook.md"].blocks("json")[1].text
    results = results_of(shown.encode(), 4, required=True)
    assert [type(result) for result in results] == [Ok, Retry, Reject, Stale]


def test_reasons_hold_no_secret_even_where_they_are_cut() -> None:
    """A receiver may repeat headers, and the path that it was sent to."""
    sink = WebhookSink.from_options(
        {
            "url": "https://example.org/hooks/canary-path?key=canary-query",
            "headers": {"x-api-key": "canary-header"},
        }
    )
    for secret in ("canary-header", "/hooks/canary-path", "key=canary-query"):
        for before in range(LONGEST_REASON - 20, LONGEST_REASON):
            result = sink._without_secrets(Reject("x" * before + secret))
            assert isinstance(result, Reject)
            assert len(result.reason) <= LONGEST_REASON
            assert "cana" not in result.reason
