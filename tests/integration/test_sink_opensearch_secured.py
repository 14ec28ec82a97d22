"""The sink `opensearch` at an Elasticsearch with security on: TLS, logins, rights. Long runs only."""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from pytube.errors import ConfigError, SinkUnavailable
from pytube.model import OK, Stale, Token
from pytube.sinks.opensearch import OpenSearchSink
from pytube.testing import batch
from tests.helpers.certificates import Certificate, make_certificate
from tests.helpers.database import server_folder
from tests.helpers.opensearch import SMALL
from tests.helpers.secured_elasticsearch import SecuredElasticsearch

pytestmark = pytest.mark.soak

SECRET = "c4nary-0f-a-passw0rd"
ALWAYS = ["index", "delete", "read", "maintenance", "view_index_metadata"]
"""What the page says that the user of a worker needs at Elasticsearch."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1,DNS:localhost")


@pytest.fixture(scope="module")
def server(certificate: Certificate) -> Iterator[SecuredElasticsearch]:
    with server_folder() as folder, SecuredElasticsearch(folder, certificate) as server:
        yield server


class Account:
    """A user with rights to one index, which nobody has made yet, and its alias."""

    def __init__(self, server: SecuredElasticsearch, certificate: Certificate) -> None:
        self.server = server
        self.name = f"t-{uuid.uuid4().hex}"
        self.authority = str(certificate.authority)
        self.grant(*ALWAYS, "manage")
        self.set_password(SECRET)

    @property
    def login(self) -> dict[str, Any]:
        return {"user": self.name, "password": SECRET}

    def grant(self, *rights: str) -> None:
        """Give it these rights, in place of others."""
        indices = [{"names": [f"{self.name}*"], "privileges": rights}]
        self.server.ask(f"/_security/role/{self.name}", "PUT", {"indices": indices})

    def set_password(self, password: str) -> None:
        user = {"password": password, "roles": [self.name]}
        self.server.ask(f"/_security/user/{self.name}", "PUT", user)

    def make_api_key(self) -> tuple[str, str]:
        """Its id, and what a client sends."""
        indices = [{"names": [f"{self.name}*"], "privileges": [*ALWAYS, "manage"]}]
        roles = {self.name: {"indices": indices}}
        made = self.server.ask("/_security/api_key", "POST", {"name": self.name, "role_descriptors": roles})
        return made["id"], made["encoded"]

    def sink(self, **options: Any) -> OpenSearchSink:
        """A sink, not open; an option that is None is left out."""
        given = {"url": self.server.url, "index": self.name, "settings": SMALL, "ca_file": self.authority}
        chosen = {name: value for name, value in (given | options).items() if value is not None}
        return OpenSearchSink.from_options(chosen)

    def values(self) -> dict[str, Any]:
        """The documents without their stamps, by `_id`."""
        self.server.ask(f"/{self.name}/_refresh", "POST")
        hits = self.server.ask(f"/{self.name}/_search")["hits"]["hits"]
        return {
            hit["_id"]: {name: value for name, value in hit["_source"].items() if name != "_pytube"}
            for hit in hits
        }


@pytest.fixture
def account(server: SecuredElasticsearch, certificate: Certificate) -> Iterator[Account]:
    account = Account(server, certificate)
    yield account
    for index in server.ask(f"/{account.name}*/_alias"):
        server.ask(f"/{index}", "DELETE")


async def write_and_read(sink: OpenSearchSink, account: Account) -> None:
    await sink.open()
    try:
        assert await sink.send(batch({1: {"v": 1}, 2: None}, token=(6, 1), tube="t")) == [OK, OK]
        late = await sink.send(batch({1: {"late": 1}, 2: {"late": 1}}, token=(5, 1)))
        assert late == [Stale(int(Token(6, 1)))] * 2
        (stored,) = (await sink.read("t", [(0, 1)])).values()
        assert stored.token == Token(6, 1)
        assert [ids async for ids in sink.scan("t", 0, 2)] == [[1]]
    finally:
        await sink.close()
    assert account.values() == {"0:1": {"v": 1}}


async def refusal(sink: OpenSearchSink, kind: type[SinkUnavailable | ConfigError]) -> str:
    """What it says when it is opened in vain: one line, which names the server."""
    with pytest.raises(kind) as refused:
        await sink.open()
    said = str(refused.value)
    assert "\n" not in said
    assert "127.0.0.1:" in said
    return said


async def test_a_user_with_the_rights_on_the_page(account: Account) -> None:
    await write_and_read(account.sink(**account.login), account)


async def test_an_api_key_until_it_is_revoked(account: Account) -> None:
    key_id, key = account.make_api_key()
    await write_and_read(account.sink(api_key=key), account)
    sink = account.sink(api_key=key)
    await sink.open()
    account.server.ask("/_security/api_key", "DELETE", {"ids": [key_id]})
    with pytest.raises(SinkUnavailable, match="takes nothing: HTTP 401: security_exception: ") as refused:
        await sink.send(batch({3: {}}, token=(7, 1)))
    await sink.close()
    assert key not in str(refused.value)


async def test_a_login_that_the_server_does_not_know(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = base64.b64encode(f"unknown:{SECRET}".encode()).decode()
    said = [
        await refusal(account.sink(**login), ConfigError)
        for login in ({"user": account.name, "password": f"not {SECRET}"}, {"api_key": key}, {})
    ]
    expected = (
        f'sink "opensearch": {account.server.url} refused to describe "{account.name}": '
        "it rejects the credentials; check user and password, or api_key"
    )
    assert set(said) == {expected}
    assert [secret for secret in (SECRET, key) if secret in caplog.text] == []


async def test_a_password_that_is_changed_while_the_sink_is_open(account: Account) -> None:
    sink = account.sink(**account.login)
    await sink.open()
    account.set_password(f"another {SECRET}")
    with pytest.raises(SinkUnavailable, match="takes nothing: HTTP 401: security_exception: ") as refused:
        await sink.send(batch({1: {"v": 1}}))
    assert SECRET not in str(refused.value)
    account.set_password(SECRET)
    assert await sink.send(batch({1: {"v": 1}})) == [OK]
    await sink.close()


async def test_a_server_under_another_authority_is_refused(
    account: Account, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = make_certificate(tmp_path_factory.mktemp("other"), "IP:127.0.0.1")
    for authority in (str(other.authority), None):  # None: those of the system
        said = await refusal(account.sink(ca_file=authority, **account.login), SinkUnavailable)
        assert said == (
            f"{account.server.url} can't be reached: its certificate is not trusted: unable to get local "
            "issuer certificate; check ca_file, and the name in url"
        )
    await write_and_read(account.sink(ca_file=None, verify=False, **account.login), account)


async def test_the_rights_that_are_needed_always_and_those_to_create(account: Account) -> None:
    account.grant(*ALWAYS)
    said = await refusal(account.sink(**account.login), SinkUnavailable)
    assert (
        f'refused to create the index "{account.name}-000001": this user does not have the right; grant it'
        in said
    )
    account.grant(*ALWAYS, "manage")
    await write_and_read(account.sink(**account.login), account)

    account.grant(*ALWAYS)
    sink = account.sink(create="never", **account.login)
    await sink.open()
    assert await sink.send(batch({2: {"v": 2}}, token=(7, 1))) == [OK]
    assert account.values() == {"0:1": {"v": 1}, "0:2": {"v": 2}}
    account.grant("read", "view_index_metadata")
    with pytest.raises(SinkUnavailable, match=r"takes nothing: HTTP 403: .* is unauthorized for user"):
        await sink.send(batch({3: {}}, token=(7, 1)))
    await sink.close()
    account.grant("monitor")
    said = await refusal(account.sink(**account.login), SinkUnavailable)
    assert f'refused to describe "{account.name}": this user does not have the right; grant it' in said
