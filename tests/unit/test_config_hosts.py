"""Several Postgres hosts in one configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from pytube.config import Config, DeclaredEnrich, SinkConfig, TubeConfig, masked, parse
from pytube.documents import resolve
from pytube.errors import ConfigError, PytubeError
from pytube.sources.terms import Shards, shards_of, shared_shards
from pytube.worker.reload import Changes, keeping, waiting_names
from tests.helpers.cli import run

HOSTS = """
[postgres]
answer_timeout = 7.0
pool_size = 3
[postgres.hosts.eu]
dsn = "postgresql://app:hunter2@eu/app"
[postgres.hosts.us-1]
dsn = "${US}"
schema = "queue"
pool_size = 9
[kafka]
bootstrap_servers = "k1:9092"
[worker]
installation = "shop"
[tube.t.sink]
type = "jsonl"
"""
ENVIRONMENT = {"US": "postgresql://app:hunter3@us/app"}


def parsed(text: str = HOSTS) -> Config:
    return parse(text, "my.toml", ENVIRONMENT)


def test_a_host_has_what_it_names_and_else_what_all_have() -> None:
    config = parsed()
    assert config.hosts == ("eu", "us-1")
    eu, us = config.of_host("eu").postgres, config.of_host("us-1").postgres
    assert eu.only_dsn.get_secret_value() == "postgresql://app:hunter2@eu/app"
    assert (eu.schema_name, eu.answer_timeout, eu.pool_size) == ("tube", 7.0, 3)
    assert us.only_dsn.get_secret_value() == ENVIRONMENT["US"]
    assert (us.schema_name, us.answer_timeout, us.pool_size) == ("queue", 7.0, 9)
    assert config.of_host("eu").hosts == (None,)


def test_hosts_share_no_leader_topic_and_no_group() -> None:
    config = parsed()
    topics = {config.of_host(name).leader_topic("t") for name in config.hosts}
    assert topics == {"pytube.shop_40eu.t", "pytube.shop_40us-1.t"}
    assert {config.of_host(name).leader_group("t") for name in config.hosts} == topics


def test_the_only_host_has_no_name() -> None:
    config = parse('[postgres]\ndsn = "host=db"')
    assert config.hosts == (None,)
    assert config.of_host(None) is config
    with pytest.raises(ConfigError, match=r"there is no host 'eu' in the configuration \(known: none\)"):
        config.of_host("eu")


def test_nobody_takes_one_of_several_hosts_for_the_only_one() -> None:
    config = parsed()
    for ask in (lambda: config.of_host(None), lambda: config.postgres.only_dsn):
        with pytest.raises(
            ConfigError, match=r"several hosts are configured: name one of eu, us-1 \(--host\)"
        ):
            ask()


def test_dsns_are_shown_masked() -> None:
    assert masked(parsed())["postgres"] == {
        "schema": "tube",
        "answer_timeout": 7.0,
        "pool_size": 3,
        "hosts": {
            "eu": {"dsn": "********"},
            "us-1": {"dsn": "********", "schema": "queue", "pool_size": 9},
        },
    }
    assert "hunter" not in repr(parsed())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[postgres]", "my.toml: key postgres.dsn: is missing"),
        (
            HOSTS.replace("[postgres]", '[postgres]\ndsn = "host=db"'),
            "key postgres.dsn: stands beside [postgres.hosts], where each host has its own; take it out",
        ),
        ("[postgres.hosts.eu]", "key postgres.hosts.eu.dsn: is missing"),
        ('[postgres.hosts.eu]\ndsm = "host=db"', "key postgres.hosts.eu.dsm: is unknown; did you mean dsn?"),
        (
            '[postgres.hosts."e u"]\ndsn = "host=db"',
            "expected a name of at most 63 letters, digits, - and _, which begins with neither",
        ),
        (
            HOSTS.replace("[tube.t.sink]", '[tube.t]\ntopic = "mine"\n[tube.t.sink]'),
            "key tube.t: topic and group of a tube can't be set while there are several hosts",
        ),
        (
            HOSTS.replace("[tube.t.sink]", '[tube.t.tables."public.t"]\nshard = 1_000_000\n[tube.t.sink]'),
            'key tube.t.tables."public.t": with several hosts, each has 1000000 shards, and these end at',
        ),
    ],
)
def test_what_can_not_be(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    assert message in str(caught.value)
    assert "hunter" not in str(caught.value)


DOCUMENTS = """
[tube.a.sink]
type = "jsonl"
[tube.b.sink]
type = "jsonl"
[document.a]
table = "shop.a"
fields = ["id"]
[document.b]
table = "shop.b"
fields = ["id"]
"""


def taken_up(
    old: Config, new: Config, refused: Collection[str] = (), down: Collection[str] = ()
) -> tuple[Config, Changes]:
    """As a worker does that serves all."""
    new = keeping(new, old, refused, old.tubes, down)
    return new, Changes.of(old, new, [*old.tubes, *old.outboxes], [*new.tubes, *new.outboxes])


def with_documents(config: Config, found: Mapping[str, Mapping[str, TubeConfig]]) -> Config:
    """The configuration with these tubes of documents on its hosts."""
    hosts = {}
    for host, tubes in found.items():
        own = config.of_host(host)
        plain = {name: tube for name, tube in own.tubes.items() if name not in own.documents}
        hosts[host] = own.model_copy(update={"tubes": {**plain, **tubes}})
    return resolve.of_hosts(config, hosts)


def test_the_same_file_changes_nothing_and_a_document_nothing_else() -> None:
    old = parsed()
    same, changes = taken_up(old, parsed())
    assert not changes
    found = {host: {"a": same.tubes["t"]} for host in same.postgres.hosts}
    compiled = with_documents(parsed(HOSTS + DOCUMENTS), found)
    assert taken_up(same, compiled)[1] == Changes(("a",), (), ())
    assert taken_up(compiled, parsed())[1] == Changes((), (), ("a",))


@pytest.mark.parametrize("down", ["eu", "us-1"])
def test_the_sink_of_all_is_that_of_the_file_while_one_host_has_the_document_of_before(down: str) -> None:
    def compiled(sink: str, hosts: Collection[str]) -> Config:
        config = parsed(HOSTS + DOCUMENTS.replace("jsonl", sink))
        query = DeclaredEnrich(mode="query", query=f"SELECT {sink}", digest=sink)
        tube = config.tubes["a"].model_copy(update={"enrich": query})
        found = {host: {"a": tube} if host in hosts else {} for host in config.postgres.hosts}
        return with_documents(config, found)

    old = compiled("stdout", ["eu", "us-1"])
    config, _ = taken_up(old, compiled("jsonl", {"eu", "us-1"} - {down}), ["a"])
    for host in config.hosts:
        digest = resolve.digest_of(config.of_host(host).tubes["a"].enrich)
        assert digest == ("stdout" if host == down else "jsonl")
    kinds = {one.tubes["a"].sink.type for one in (config, *map(config.of_host, config.hosts))}
    assert kinds == {"jsonl"}
    config, _ = taken_up(config, compiled("jsonl", []), ["a"])
    assert config.tubes["a"].sink.type == "jsonl"


def test_a_host_that_is_down_keeps_what_it_has() -> None:
    old = parsed()
    tube = '[tube.t]\nattempts = 9\n[tube.t.sink]\ntype = "jsonl"\n'
    new = parsed(
        HOSTS.partition("[tube.t.sink]")[0] + tube + '[tube.new.sink]\ntype = "jsonl"\n[outbox.box]\n'
    )
    config, changes = taken_up(old, new, down=["us-1"])
    assert changes == Changes(("box", "new"), ("t",), ())
    us, eu = config.of_host("us-1"), config.of_host("eu")
    assert (list(us.tubes), list(us.outboxes), us.tubes["t"].attempts) == (["t"], [], 5)
    assert eu.tubes == config.tubes == new.tubes
    assert waiting_names(new, config, ["t", "new", "box"], "us-1") == {"t", "new", "box"}
    assert waiting_names(new, config, ["t", "new", "box"], "eu") == set()
    assert taken_up(config, new, down=["us-1"])[1] == Changes((), (), ())
    config, changes = taken_up(config, new)
    assert changes == Changes((), ("box", "new", "t"), ())
    assert config.of_host("us-1").tubes == new.tubes
    assert taken_up(config, old, down=["us-1"])[1] == Changes((), ("t",), ("box", "new"))


@pytest.mark.parametrize(("more", "has"), [("", True), ("[tube.t]\nattempts = 9\n", False)])
def test_a_host_that_is_down_sends_no_documents_of_before_to_another_sink(more: str, has: bool) -> None:
    """It takes up a sink at once, as there is nothing to check, but none that comes with other documents."""
    new = parsed(HOSTS.replace('[tube.t.sink]\ntype = "jsonl"', f'{more}[tube.t.sink]\ntype = "stdout"'))
    config, changes = taken_up(parsed(), new, down=["us-1"])
    assert changes == Changes((), ("t",), ())
    us = config.of_host("us-1").tubes
    assert us == (new.tubes if has else {})
    assert waiting_names(new, config, ["t"], "us-1") == (set() if has else {"t"})
    assert taken_up(config, new)[1] == Changes((), () if has else ("t",), ())


def test_documents_that_were_resolved_keep_their_companions(monkeypatch: pytest.MonkeyPatch) -> None:
    on_hosts = resolve.resolve_each

    def each(
        config: Config, only: Collection[str] | None = None, *, is_to_read: bool = True
    ) -> tuple[Config, dict[str, PytubeError]]:
        if config.postgres.hosts:
            return on_hosts(config, only, is_to_read=is_to_read)
        tubes = dict(config.tubes)
        for name in only or ():
            query = DeclaredEnrich(mode="query", query="SELECT 1", digest=name)
            tubes[name] = tubes[name].model_copy(update={"enrich": query})
            sink = SinkConfig(type=resolve.RELATIONS, options={"tube": name})
            tubes[f"{name}_relations"] = TubeConfig(sink=sink)
        return config.model_copy(update={"tubes": tubes}), {}

    monkeypatch.setattr(resolve, "resolve_each", each)
    config = parsed(HOSTS + DOCUMENTS)
    for name in ("a", "b"):
        config = resolve.resolve(config, [name])
    for one in (config, *map(config.of_host, config.hosts)):
        assert sorted(one.tubes) == ["a", "a_relations", "b", "b_relations", "t"]
    assert config.tubes["a_relations"].sink.options["hosts"].keys() == {"eu", "us-1"}


def found(*hosts: list[tuple[str, int, int]]) -> Iterator[tuple[str, int, tuple[str, str]]]:
    named: dict[str | None, Shards] = {f"h{number}": shards_of(one) for number, one in enumerate(hosts)}
    return ((one.tube, one.shard, one.hosts) for one in shared_shards(named))


def test_shards_that_two_hosts_have() -> None:
    assert list(found([("t", 0, 4)], [("t", 4, 4)], [("u", 0, 8)])) == []
    assert list(found([("t", 0, 4)], [("t", 3, 1), ("t", 9, 1)])) == [("t", 3, ("h0", "h1"))]
    assert list(found([("t", 5, 2), ("u", 1, 1)], [("t", 0, 9), ("u", 1, 1)])) == [
        ("t", 5, ("h0", "h1")),
        ("u", 1, ("h0", "h1")),
    ]
    assert [hosts for _, _, hosts in found(*[[("t", 0, 1)]] * 3)] == [
        ("h0", "h1"),
        ("h0", "h2"),
        ("h1", "h2"),
    ]


def test_the_only_host_shares_its_shards_with_nobody() -> None:
    assert list(shared_shards({None: shards_of([("t", 0, 4), ("t", 0, 4)])})) == []


def test_a_reindex_of_several_hosts_is_refused(tmp_path: Path) -> None:
    """It would fill the new index with the rows of one of them, compare those alone, and switch."""
    (tmp_path / "pytube.toml").write_text("""
        [postgres.hosts.eu]
        dsn = "host=127.0.0.1 port=1"
        [postgres.hosts.us]
        dsn = "host=127.0.0.1 port=1"
        [worker]
        election = "lease"
        [tube.t.sink]
        type = "opensearch"
        url = "http://127.0.0.1:1"
        index = "t"
    """)
    for step in ("start", "switch", "finish"):
        for host in ([], ["--host", "eu"]):
            refused = run("reindex", step, "--tube", "t", *host, folder=tmp_path, code=2)
            assert refused.stderr == (
                "pytube: tube 't' can't be reindexed: several hosts are configured, and the new index would "
                "be filled with the rows of one of them alone; fill another index by a second tube, "
                "see docs/reindex.md\n"
            )
