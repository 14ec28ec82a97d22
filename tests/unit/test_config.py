"""The configuration file: what it may hold, and what is said when it is wrong."""

from pathlib import Path

import pytest

from pytube.config import Config, PostgresConfig, SinkConfig, TubeConfig, load, parse
from pytube.errors import ConfigError

GOOD = """
[postgres]
dsn = "postgresql://app:${PASSWORD}@db/app"
schema = "queue"

[kafka]
bootstrap_servers = "k1:9092,k2:9092"
options = { "sasl.password" = "${PASSWORD}", "security.protocol" = "SASL_SSL" }

[worker]
session_timeout = "${SESSION:-20}"
client_id = "one"

[tube."es-live".sink]
type = "jsonl"
path = "/tmp/out"
request_timeout = 2

[tube."es-live".enrich]
mode = "query"
query = "SELECT 1"

[tube.plain]
sink = { type = "callable", target = "a:b" }
attempts = 3
"""
ENVIRONMENT = {"PASSWORD": "hunter2", "EMPTY": ""}


def good(text: str = GOOD) -> Config:
    return parse(text, environment=ENVIRONMENT)


def refused(text: str) -> str:
    """The message that a configuration is refused with; it names the file and repeats no secret."""
    with pytest.raises(ConfigError) as caught:
        parse(text, "my.toml", ENVIRONMENT)
    message = str(caught.value)
    assert message.startswith("my.toml: ")
    assert "hunter2" not in message
    return message.removeprefix("my.toml: ")


def minimal(more: str = "") -> str:
    return f'[postgres]\ndsn = "host=db"\n{more}'


class TestGood:
    def test_values_defaults_and_variables(self) -> None:
        config = good()
        assert config.postgres.only_dsn.get_secret_value() == "postgresql://app:hunter2@db/app"
        assert config.postgres.schema_name == "queue"
        assert config.kafka is not None
        assert config.kafka.options["sasl.password"] == "hunter2"
        assert config.worker.session_timeout == 20.0
        assert config.worker.receive_deadline == 5.0
        assert config.tube("es-live").sink.options == {"path": "/tmp/out"}
        assert config.tube("es-live").sink.request_timeout == 2.0
        assert config.tube("es-live").mark_limit == 1000
        assert config.tube("plain").enrich.mode == "row"

    def test_only_postgres_is_needed(self) -> None:
        config = parse(minimal())
        assert config.tubes == {}
        assert config.kafka is None
        assert config.postgres.schema_name == "tube"
        assert config.worker.client_id

    def test_election(self) -> None:
        assert good().election_kind == "neli"
        assert parse(minimal()).election_kind == "lease"
        assert good(GOOD.replace("[worker]", '[worker]\nelection = "lease"')).election_kind == "lease"

    def test_leader_topics_are_legal_names(self) -> None:
        config = parse(
            minimal("""
                [worker]
                installation = "shop"
                [tube."es-live".sink]
                type = "jsonl"
                [tube."a b".sink]
                type = "jsonl"
                [tube."a_b"]
                sink.type = "jsonl"
                topic = "mine"
            """)
        )
        assert config.leader_topic("es-live") == "pytube.shop.es-live"
        assert config.leader_group("es-live") == "pytube.shop.es-live"
        assert config.leader_topic("a b") == "pytube.shop.a_20b"
        assert config.leader_topic("a_b") == "mine"
        assert config.leader_group("a_b") == "pytube.shop.a__b"

    def test_by_hand(self) -> None:
        config = Config(
            postgres=PostgresConfig.model_validate({"dsn": "host=db"}),
            tubes={"t": TubeConfig(sink=SinkConfig(type="jsonl", options={"path": "x"}))},
        )
        assert config.tube("t").sink.options == {"path": "x"}

    @pytest.mark.parametrize(
        ("section", "value"),
        [
            ("[worker]\npartitions", 4),
            ("[worker]\nshed_after", 4.0),
            ("[kafka]\nbootstrap_servers = 'b'\nshared_partitions", 4),
            ("[tube.t]\npark_limit", 4),
            ("[tube.t.sink]\nrate", 4.0),
            ("[tube.t.sink]\nrequests", 4),
            ("[tube.t.backfill]\nreplica_behind", 4),
            ("[tube.t.backfill]\nreplica_lag", 4.0),
            ("[postgres.hosts.a]\ndsn = 'host=a'\npool_size", 4),
        ],
    )
    def test_a_number_that_may_be_left_out_comes_from_a_variable(self, section: str, value: object) -> None:
        start = "" if "hosts" in section else minimal()
        sink = "" if "sink" in section else "[tube.t.sink]\n"

        def parsed(text: str) -> Config:
            return parse(f"{start}{section} = {text}\n{sink}type = 'jsonl'\n", environment={"N": "4"})

        assert parsed('"${N}"') == parsed('"${M:-4}"') == parsed(str(value))

    def test_a_limit_may_be_off_by_a_variable(self) -> None:
        text = minimal("[worker]\nshed_after = '${LIMIT}'")
        assert parse(text, environment={"LIMIT": "off"}).worker.shed_after is None

    def test_dollar_brace_can_be_written(self) -> None:
        text = minimal('[tube.t]\nsink = { type = "jsonl", path = "$${HOME}" }')
        assert good(text).tube("t").sink.options == {"path": "${HOME}"}

    @pytest.mark.parametrize(
        ("text", "value"), [("${EMPTY:-x}", "x"), ("${NONE:-}", ""), ("a${EMPTY}b", "ab")]
    )
    def test_defaults_of_variables(self, text: str, value: str) -> None:
        config = good(minimal(f'[tube.t]\nsink = {{ type = "jsonl", path = "{text}" }}'))
        assert config.tube("t").sink.options == {"path": value}


class TestBad:
    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"none\.toml: there is no such file; name the configuration"):
            load(tmp_path / "none.toml")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="can't be read"):
            load(tmp_path)

    def test_not_toml(self) -> None:
        assert (
            refused("[postgres\n")
            == "is not TOML: Expected ']' at the end of a table declaration (at line 1, column 10)"
        )

    def test_unknown_key_with_a_likely_one(self) -> None:
        assert refused(minimal('schem = "x"')) == "key postgres.schem: is unknown; did you mean schema?"

    def test_unknown_key_lists_the_known(self) -> None:
        message = refused(minimal('[tube."es-live"]\nsink.type = "jsonl"\nfoo = 1'))
        assert message.startswith('key tube."es-live".foo: is unknown; expected one of attempts, ')

    def test_unknown_section(self) -> None:
        assert refused(minimal("[workers]\nx = 1")) == "key workers: is unknown; did you mean worker?"

    def test_names_of_ours_are_not_keys(self) -> None:
        assert refused(minimal('schema_name = "x"')).startswith("key postgres.schema_name: is unknown")

    def test_missing_key(self) -> None:
        assert refused("") == "key postgres: is missing"
        assert refused(minimal("[tube.t]\nattempts = 1")) == "key tube.t.sink: is missing"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "[worker]\nsession_timeout = true",
                "key worker.session_timeout: expected a number, got true or false",
            ),
            (
                '[worker]\nsession_timeout = "20"',
                "key worker.session_timeout: expected a number, got a string",
            ),
            ("[tube.t]\nsink.type = 5", "key tube.t.sink.type: expected a string, got a whole number"),
            (
                "[tube.t]\nsink.type = 'x'\nattempts = 1.5",
                "key tube.t.attempts: expected a whole number, got a number",
            ),
            ("[tube]\nt = 5", "key tube.t: expected a table, got a whole number"),
            (
                "[kafka]\nbootstrap_servers = []",
                "key kafka.bootstrap_servers: expected a string, got an array",
            ),
        ],
    )
    def test_wrong_type(self, text: str, message: str) -> None:
        assert refused(minimal(text)) == message

    @pytest.mark.parametrize(
        ("parts", "says"),
        [
            ("0", "expected 1 to 1000 parts, got 0"),
            ("[]", "expected 1 to 1000 parts, got 0"),
            ("true", "expected a list of names, or a whole number of parts"),
            ('"head"', "expected a list of names, or a whole number of parts"),
            ('["head", 1]', "expected a list of names, or a whole number of parts"),
            ('["a/b"]', 'expected names of at most 63 letters, digits, "_", "-" and "."'),
            ('["head", "head"]', "a name stands there twice; take one of them out"),
        ],
    )
    def test_parts_that_can_not_be(self, parts: str, says: str) -> None:
        message = refused(minimal(f"[tube.t]\nsink.type = 'x'\nsink.parts = {parts}"))
        assert message == f"key tube.t.sink.parts: {says}"

    def test_value_out_of_range(self) -> None:
        message = refused(minimal("[tube.t]\nsink.type = 'x'\nmark_limit = 0"))
        assert message == "key tube.t.mark_limit: expected greater than or equal to 1"

    def test_unknown_choice(self) -> None:
        message = refused(minimal('[worker]\nelection = "vote"'))
        assert message == "key worker.election: expected 'auto', 'neli' or 'lease'"

    def test_every_fault_is_named(self) -> None:
        message = refused(minimal("x = 1\n[worker]\nreceive_deadline = 'a'"))
        assert "postgres.x" in message
        assert "worker.receive_deadline" in message

    def test_missing_variable(self) -> None:
        assert refused('[postgres]\ndsn = "host=${DB_HOST}"') == (
            "key postgres.dsn: the environment variable DB_HOST is not set; "
            "set it, or give a default with ${DB_HOST:-default}"
        )

    @pytest.mark.parametrize("text", ["${}", "${1A}", "${open", "${A B}"])
    def test_malformed_reference(self, text: str) -> None:
        assert refused(f'[postgres]\ndsn = "{text}"').startswith("key postgres.dsn: expected ${NAME}")

    def test_a_variable_that_is_no_number(self) -> None:
        message = refused(minimal('[worker]\nsession_timeout = "${PASSWORD}"'))
        assert message == "key worker.session_timeout: expected a number, got a string"

    def test_inconsistent_deadlines(self) -> None:
        message = refused(GOOD.replace("${SESSION:-20}", "${SESSION:-6}"))
        assert message == (
            'key tube."es-live".sink.request_timeout: 2 s and worker.receive_deadline of 5 s are together '
            "more than worker.session_timeout of 6 s, so a new leader could begin while the old one's last "
            "request is still under way; lower the first two, or raise the third to at least 7 s"
        )

    def test_a_limit_on_partitions_where_a_group_gives_them_out(self) -> None:
        message = refused(minimal('[kafka]\nbootstrap_servers = "k:1"\n[worker]\npartitions = 2'))
        assert message == (
            "key worker.partitions: under the election neli the group gives out the partitions, and a member "
            'can\'t refuse one; take the key out, or set worker.election = "lease"'
        )

    def test_neli_without_a_broker(self) -> None:
        message = refused(minimal('[worker]\nelection = "neli"'))
        assert message.startswith('key worker.election: "neli" needs a broker; add a section [kafka]')

    @pytest.mark.parametrize("enrich", ['mode = "query"', 'query = "SELECT 1"'])
    def test_query_and_mode(self, enrich: str) -> None:
        message = refused(minimal(f'[tube.t.sink]\ntype = "x"\n[tube.t.enrich]\n{enrich}'))
        assert message == 'key tube.t.enrich: a query goes with mode = "query", and the mode needs one'

    def test_columns(self) -> None:
        tables = """
            [tube.t.sink]
            type = "x"
            [tube.t.enrich]
            columns = ["id", "Total"]
            [tube.t.enrich."public.orders"]
        """
        enrich = good(minimal(tables)).tube("t").enrich
        orders = enrich.of_table("public", "orders")
        assert enrich.columns == ["id", "Total"]
        assert orders is not None
        assert orders.columns is None, "a section stands alone"

    @pytest.mark.parametrize(
        ("enrich", "message"),
        [
            ('columns = ["id"]\nmode = "none"', 'key tube.t.enrich: columns go with mode = "row"; a query'),
            ('columns = ["id", "id"]', "key tube.t.enrich: columns has a name twice"),
            ('columns = "id"', "key tube.t.enrich.columns: expected an array, got a string"),
            ("columns = []", "key tube.t.enrich.columns: list should have at least 1 item"),
            ('columns = [""]', "key tube.t.enrich.columns.0: string should have at least 1 character"),
        ],
    )
    def test_columns_that_can_not_be(self, enrich: str, message: str) -> None:
        assert message in refused(minimal(f'[tube.t.sink]\ntype = "x"\n[tube.t.enrich]\n{enrich}'))

    @pytest.mark.parametrize("name", ["slim", "shop documents:slim", "shop.documents:"])
    def test_transforms_are_named_as_functions_of_modules(self, name: str) -> None:
        tube = '[tube.t]\ntransforms = ["shop.documents:slim", "{}"]\n[tube.t.sink]\ntype = "x"'
        named = good(minimal(tube.format("shop.documents:Rules.flag"))).tube("t").transforms
        assert named == ["shop.documents:slim", "shop.documents:Rules.flag"]
        message = refused(minimal(tube.format(name)))
        assert message == 'key tube.t.transforms.1: expected "module:function", e.g. "shop.documents:slim"'

    def test_sections_of_tables(self) -> None:
        tables = """
            [tube.t.sink]
            type = "x"
            [tube.t.enrich]
            mode = "none"
            [tube.t.enrich."public.Orders"]
            mode = "query"
            query = "SELECT 1"
            [tube.t.enrich.'shop."Odd.Name"']
        """
        enrich = good(minimal(tables)).tube("t").enrich
        orders, odd = (enrich.of_table(*name) for name in (("public", "orders"), ("shop", "Odd.Name")))
        assert orders is not None
        assert orders.query == "SELECT 1"
        assert odd is not None
        assert odd.mode == "row"
        assert enrich.of_table("public", "Orders") is None
        again = tables + '[tube.t.enrich."public.orders"]'
        assert "two of its sections are for the same table" in refused(minimal(again))

    @pytest.mark.parametrize(
        ("section", "message"),
        [
            ('[tube.t.enrich."a.b.c"]', "'a.b.c' does not name a table; expected schema.table"),
            ("[tube.t.enrich.orders]", "'orders' does not name a table; expected schema.table"),
            ("[tube.t.enrich]\nqeury = 'x'", "key tube.t.enrich.qeury: is unknown; did you mean query?"),
            ('[tube.t.enrich."a.b"]\nquery = "x"', 'key tube.t.enrich."a.b": a query goes with mode'),
        ],
    )
    def test_sections_of_no_table(self, section: str, message: str) -> None:
        assert message in refused(minimal(f'[tube.t.sink]\ntype = "x"\n{section}'))

    def test_a_tube_that_is_not_configured(self) -> None:
        with pytest.raises(ConfigError, match=r"'other' is not configured \(configured: es-live, plain\)"):
            good().tube("other")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ('"http://127.0.0.1:4318"', "http://127.0.0.1:4318"),
        ('"${TRACING}"', True),
    ],
)
def test_tracing_is_a_flag_or_a_collector(text: str, value: object) -> None:
    config = parse(f'[postgres]\ndsn = "d"\n[worker]\ntracing = {text}', environment={"TRACING": "true"})
    assert config.worker.tracing == value


@pytest.mark.parametrize(
    "text", ['"yes"', '"localhost:4318"', '"http://me:hunter2@host"', '"http://h?key=1"', "1"]
)
def test_another_value_of_tracing_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match=r"worker\.tracing") as refusal:
        parse(f'[postgres]\ndsn = "d"\n[worker]\ntracing = {text}', environment={})
    assert "hunter2" not in str(refusal.value)


OUTBOX = GOOD + "[outbox.orders]\n"


class TestOutboxes:
    def test_leader_names(self) -> None:
        config = good(OUTBOX + 'leader_topic = "l"\n[outbox.other]\n')
        assert (config.leader_topic("orders"), config.leader_group("orders")) == (
            "l",
            "pytube.default.orders",
        )
        assert config.leader_topic("other") == "pytube.default.other"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (GOOD + "[outbox.plain]\n", "key outbox.plain: there is a tube of that name"),
            ('[postgres]\ndsn = "x"\n[outbox.o]\n', "key outbox.o: an outbox needs a broker"),
            (OUTBOX + "message_timeout = 15\n", "raise the third to at least 21 s"),
            (OUTBOX + 'mode = "loose"\n', "windowed"),
            (
                OUTBOX.replace("[worker]", "shared_partitions = 4\n[worker]") + 'leader_group = "g"\n',
                "leader_topic and leader_group can't be set",
            ),
        ],
        ids=["name", "broker", "deadline", "mode", "shared"],
    )
    def test_refused(self, text: str, message: str) -> None:
        assert message in refused(text)

    def test_one_that_is_not_configured(self) -> None:
        with pytest.raises(ConfigError, match=r"'other' is not configured \(configured: orders\)"):
            good(OUTBOX).outbox("other")
