"""The options of the sink `redis`, and how documents become hashes."""

from __future__ import annotations

import pytest

from pytube.errors import ConfigError
from pytube.model import Token
from pytube.sinks.redis_script import Call, hash_fields, hash_tag, id_of, member_of, seq_of
from pytube.sinks.redis_servers import RedisOptions

URL = "redis://cache.internal"
CANARY = "canary-5e1f"


def parse(**options: object) -> RedisOptions:
    return RedisOptions.parse("redis", {"url": URL, **options})


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"url": f"http://user:{CANARY}@x"}, "url"),
        ({"url": "redis://"}, "url"),
        ({"url": "redis://x/database"}, "url"),
        ({"url": "redis://x?db=1"}, "url"),
        ({"url": f"redis://:{CANARY}@x:port"}, "url"),
        ({"key": "all"}, "key"),
        ({"mode": CANARY}, "mode"),
        ({"tombstone_seconds": 0}, "tombstone_seconds"),
        ({"password": CANARY, "passwort": CANARY}, "passwort"),
        ({"cluster": True, "key": "{id}"}, "key"),
        ({"cluster": True, "key": "{{{id}}}:{shard}"}, "key"),
        ({"cluster": True, "key": "{id}:{{{shard}}}"}, "key"),
        ({"cluster": True, "url": "redis://x/1"}, "url"),
        ({"cluster": True, "key": "{id}", "password": CANARY}, "key"),
    ],
)
def test_bad_options(options: dict[str, object], option: str) -> None:
    with pytest.raises(ConfigError, match=f'option "{option}"') as caught:
        parse(**options)
    assert CANARY not in str(caught.value)


def test_a_cluster_takes_the_default_and_a_tag_of_ones_own() -> None:
    assert parse(cluster=True).cluster
    assert parse(cluster=True, key="{{users:{shard}}}:{id}").cluster
    assert parse(cluster=True, key="{{users}}:{id}").cluster


def test_connection() -> None:
    given = parse(url="rediss://me:a%2Fb@cache.internal:6380/2", ca_file="/ca.pem", verify=False).connection()
    assert (given["db"], given["username"], given["password"]) == (2, "me", "a/b")
    assert (given["ssl_cert_reqs"], given["ssl_ca_certs"]) == ("none", "/ca.pem")
    own = parse(url=f"redis://me:{CANARY}@x", username="you", password="secret")
    assert (own.connection()["username"], own.connection()["password"]) == ("you", "secret")
    assert "ssl_cert_reqs" not in own.connection()
    assert CANARY not in repr(own)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"{}", []),
        (b' { "a" : 1.10 , "b":"x\\ty" } ', [b"a", b"1.10", b"b", b"x\ty"]),
        (
            b'{"a":9007199254740993,"b":[1, {"c":null}]}',
            [b"a", b"9007199254740993", b"b", b'[1, {"c":null}]'],
        ),
        (b'{"a":null,"b":true,"":"\xc3\xa4"}', [b"b", b"true", b"", b"\xc3\xa4"]),
        (b'{"a":1,"a":2}', [b"a", b"2"]),
        (b'{"a":1,"a":null}', []),
        (b'{\n"a":\r\n[\t]\n}', [b"a", b"[\t]"]),
    ],
)
def test_hash_fields(body: bytes, fields: list[bytes]) -> None:
    assert hash_fields(body) == fields


@pytest.mark.parametrize(
    "body", [b"[]", b'"text"', b"7", b"", b'{"a":', b'{"a":"\\ud800"}', b'{"a":%b}' % (b"[" * 99_999)]
)
def test_what_is_no_hash(body: bytes) -> None:
    with pytest.raises(ValueError, match="object|surrogate|nested|it is not a? ?(valid )?JSON"):
        hash_fields(body)


@pytest.mark.parametrize("name", ["%d", "a"])
def test_a_hash_of_too_many_fields(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of those with one name, too, each takes its time."""
    monkeypatch.setattr("pytube.sinks.redis_script.MOST_FIELDS", 3)
    fields = [f'"{name.replace("%d", str(at))}":{at}' for at in range(4)]
    assert hash_fields(f"{{{','.join(fields[:3])}}}".encode())[-1] == b"2"
    with pytest.raises(ValueError, match="it has more than 3 fields"):
        hash_fields(f"{{{','.join(fields)}}}".encode())


@pytest.mark.parametrize("key", [0, -7, 2**63 - 1, "", "7", "=7", "ä\n"])
def test_members_of_the_register(key: int | str) -> None:
    assert id_of(member_of(key)) == key


def test_what_is_no_stamp_counts_as_older_than_any() -> None:
    assert (seq_of(b"5:1:11"), seq_of(b"mine"), seq_of(b"")) == (11, -1, -1)


@pytest.mark.parametrize(
    ("name", "tag"), [(b"{a:1}:7", b"a:1"), (b"a{}b", b""), (b"a}{b}", b"b"), (b"7", b""), (b"{", b"")]
)
def test_hash_tag(name: bytes, tag: bytes) -> None:
    assert hash_tag(name) == tag


def test_a_seq_that_no_double_holds() -> None:
    """It is stored as text, so that its last digit counts."""
    call = Call(b"register", 2**53 + 1, Token(1, 1))
    call.add(0, b"name", b"7", (b"1", b"{}"))
    assert b"9007199254740993" in call.command(60, with_text=False)
