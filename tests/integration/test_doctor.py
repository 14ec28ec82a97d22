"""What the doctor finds, and what it says to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pytube.config import Config, parse
from pytube.health.doctor import examine
from pytube.health.findings import Check, Level
from tests.conftest import Connect
from tests.helpers.capture import Conn, attach, make_tube, open_session
from tests.helpers.cli import run, run_json
from tests.helpers.roles import as_role, roles

pytestmark = [pytest.mark.every_server, pytest.mark.each_value]

if TYPE_CHECKING:
    from pytube.embedded.kafka_real import RealKafka


def configured(dsn: str, more: str = "") -> Config:
    return parse(f'[postgres]\ndsn = "${{DSN}}"\n{more}', environment={"DSN": dsn})


def found(config: Config, subject: str, level: Level) -> list[Check]:
    return [check for check in examine(config) if check.subject == subject and check.level is level]


def one(config: Config, subject: str, level: Level) -> Check:
    checks = found(config, subject, level)
    assert len(checks) == 1, [c for c in examine(config) if c.subject == subject]
    return checks[0]


def test_all_is_well_on_every_server(any_dsn: str) -> None:
    checks = list(examine(configured(any_dsn)))
    assert [check for check in checks if check.level is Level.FAIL] == []
    subjects = {check.subject for check in checks}
    assert {"server", "SQL", "rights", "tube_seq", "connections", "pooler", "election"} <= subjects
    assert all(check.remedy for check in checks if check.level is not Level.OK)


def test_before_the_installation(bare_dsn: str) -> None:
    config = configured(bare_dsn)
    assert one(config, "SQL", Level.FAIL).remedy == "run `pytube install`"
    one(config, "rights", Level.OK)


def test_down() -> None:
    config = configured("postgresql://app:hunter2@127.0.0.1:1/app")
    check = one(config, "Postgres", Level.FAIL)
    assert "not available" in check.finding
    assert "(postgres.dsn)" in check.finding
    assert "hunter2" not in repr(check)


@pytest.mark.parametrize("there", ["down", "not_installed", "no_rights"])
def test_nothing_is_said_of_tubes_that_can_not_be_looked_at(
    there: str, dsn: str, bare_dsn: str, conn: psycopg.Connection
) -> None:
    more = '[tube.here.sink]\ntype = "jsonl"\npath = "/dev/null"\n'
    run("tube", "create", "here", dsn=dsn)
    conn.execute("DROP ROLE IF EXISTS a_guest")
    conn.execute("CREATE ROLE a_guest LOGIN")
    dsns = {
        "down": "postgresql://127.0.0.1:1/app",
        "not_installed": bare_dsn,
        "no_rights": psycopg.conninfo.make_conninfo(dsn, user="a_guest"),
    }
    subjects = {check.subject for check in examine(configured(dsns[there], more))}
    assert not subjects & {"tube here", "leaders of here", "enriching of here", "enriching"}
    assert "sink of here" in subjects
    subjects = {check.subject for check in examine(configured(dsn, more))}
    assert {"tube here", "leaders of here", "enriching of here"} <= subjects


def test_rights(dsn: str, conn: psycopg.Connection) -> None:
    conn.execute("DROP ROLE IF EXISTS a_guest")
    conn.execute("CREATE ROLE a_guest LOGIN")
    guest = configured(psycopg.conninfo.make_conninfo(dsn, user="a_guest"))
    lacking = one(guest, "rights", Level.FAIL)
    assert lacking.finding == "a_guest does not have a worker's rights"
    assert lacking.remedy == (
        "run the doctor as the worker's role; if that is this one, as the role that installed, run: "
        'GRANT "tube_worker" TO "a_guest"'
    )
    conn.execute(lacking.remedy.partition("run: ")[2])
    one(guest, "rights", Level.OK)


def test_sequence(dsn: str, conn: psycopg.Connection) -> None:
    conn.execute("ALTER SEQUENCE tube_seq CACHE 20")
    check = one(configured(dsn), "tube_seq", Level.FAIL)
    assert check.remedy is not None
    assert check.remedy.startswith('ALTER SEQUENCE "tube"."tube_seq" INCREMENT 1 CACHE 1')


def test_settings(dsn: str, conn: psycopg.Connection) -> None:
    row = conn.execute("SELECT current_database()").fetchone()
    assert row is not None
    conn.execute(f"ALTER DATABASE {row[0]} SET synchronous_commit = off")
    conn.execute(f"ALTER DATABASE {row[0]} SET idle_in_transaction_session_timeout = '5min'")
    config = configured(dsn)
    one(config, "synchronous_commit", Level.WARN)
    one(config, "idle transactions", Level.OK)


def test_old_transactions(dsn: str, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytube.health.server._OLD", 0.0)
    session = connect(autocommit=False, application_name="the forgotten one")
    session.execute("CREATE TABLE public.t ()")
    checks = found(configured(dsn), "transactions", Level.WARN)
    (forgotten,) = [check for check in checks if "the forgotten one" in check.finding]
    assert f"pg_terminate_backend({session.info.backend_pid})" in str(forgotten.remedy)
    session.execute("PREPARE TRANSACTION 'the late one'")
    (prepared,) = [c for c in found(configured(dsn), "transactions", Level.WARN) if "late one" in c.finding]
    assert "ROLLBACK PREPARED 'the late one'" in str(prepared.remedy)


class TestIds:
    """Ids of attached tables that no index proves unique."""

    @pytest.fixture
    def loose(self, any_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Conn]:
        """A table with the ids 1 to 9, attached to a tube of its rows that are not off."""
        monkeypatch.setattr("pytube.health.queues.LIMIT", 60.0)  # a busy machine needs more than 5 s
        with open_session(any_dsn) as conn:
            conn.execute("CREATE TABLE public.loose (id int, off boolean)")
            conn.execute("INSERT INTO public.loose SELECT generate_series(1, 9)")
            make_tube(conn, predicate="off IS NULL")
            attach(conn, "public.loose")
            yield conn

    def test_proven(self, any_dsn: str, loose: Conn) -> None:
        loose.execute("ALTER TABLE public.loose ADD PRIMARY KEY (id)")
        assert one(configured(any_dsn), "ids", Level.OK).finding == (
            "an index proves them unique in each attached table"
        )

    def test_repeated(self, any_dsn: str, loose: Conn) -> None:
        loose.execute("INSERT INTO public.loose VALUES (7), (NULL), (NULL)")
        loose.execute("INSERT INTO public.loose VALUES (8, true)")
        assert one(configured(any_dsn), "ids of public.loose", Level.FAIL).finding == (
            "values of id that stand more than once: 1 (7), in the 10 rows of the tube that were looked at, "
            "which are all; of rows with one id, any one becomes the document"
        )

    @pytest.mark.usefixtures("loose")
    def test_not_repeated(self, any_dsn: str) -> None:
        check = one(configured(any_dsn), "ids of public.loose", Level.WARN)
        assert check.finding == (
            "no index proves id unique; no value stands twice in the 9 rows of the tube that were looked at, "
            "which are all"
        )
        assert check.remedy == "make a unique index on id, or attach it by a column that has one"

    def test_a_sample(self, any_dsn: str, loose: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of the ids of a partitioned table, whose key they lead, some are looked at."""
        loose.execute("SELECT tube_table_ensure_detached(NULL, 'public.loose')")
        loose.execute(
            "CREATE TABLE public.parts (id int, off boolean, PRIMARY KEY (id, off)) PARTITION BY LIST (off)"
        )
        loose.execute("CREATE TABLE public.part PARTITION OF public.parts DEFAULT")
        loose.execute("SELECT tube_ensure_exists('all')")
        attach(loose, "public.parts", tube="all")
        loose.execute("INSERT INTO public.parts SELECT generate_series(1, 9000), false")
        monkeypatch.setattr("pytube.health.queues.PAGES", 20)
        finding = one(configured(any_dsn), "ids of public.parts", Level.OK).finding
        assert finding.startswith("no index proves id unique; no value stands twice in the ")
        assert finding.endswith(" rows of the tube that were looked at, which are not all")
        assert 0 < int(finding.split(" rows")[0].split()[-1]) < 9000

    def test_not_looked_at(self, any_dsn: str, loose: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the role may not read, or takes too long, is no good news."""
        with roles(any_dsn, "looker") as admin:
            admin.execute("GRANT tube_worker TO looker")
            role = configured(as_role(any_dsn, "looker"))
            check = one(role, "ids of public.loose", Level.WARN)
            assert check.finding == (
                "no index proves id unique, and its rows were not looked at: "
                "permission denied for table loose"
            )
            loose.execute("GRANT SELECT ON public.loose TO looker")
            loose.execute("ALTER TABLE public.loose ENABLE ROW LEVEL SECURITY")
            assert "row-level security" in one(role, "ids of public.loose", Level.WARN).finding
        monkeypatch.setattr("pytube.health.queues._TOTAL", 0.0)
        with psycopg.connect(any_dsn) as holder:
            holder.execute("LOCK TABLE public.loose")
            check = one(configured(any_dsn), "ids of public.loose", Level.WARN)
        assert "that took longer than" in check.finding


def test_a_table_that_was_given_away_without_its_functions(any_dsn: str) -> None:
    with roles(any_dsn, "ann", "bob") as admin:
        admin.execute("SET search_path = tube, public")
        admin.execute(
            "CREATE TABLE public.given (id bigint PRIMARY KEY); ALTER TABLE public.given OWNER TO ann"
        )
        make_tube(admin)
        attach(admin, "public.given")
        assert found(configured(any_dsn), "owners", Level.OK)
        admin.execute("ALTER TABLE public.given OWNER TO bob")
        check = one(configured(any_dsn), "owner of given", Level.FAIL)
    assert check.finding.startswith("is bob, who has not agreed to be captured by tube")
    assert check.remedy == "run as bob, or as a role with its rights: SELECT tube.tube_sync();"


PART = '"given $(x)"'
TRUNCATE = '"given $(x)_t_before_truncate_trigger"'
ROWS = '"given $(x)_t_after_row_trigger"'
REPAIR = f"ENABLE ALWAYS TRIGGER {TRUNCATE}, ENABLE REPLICA TRIGGER {ROWS}"
MISSED = " by its name, so such writes are missed"
REPLICA = "SELECT tube_table_ensure_attached('t', 'given', 0, replica => true); "
BACKFILL = "pytube backfill start t --table given"


@pytest.mark.parametrize(
    ("ddl", "subject", "level", "finding", "remedy"),
    [
        (
            "DROP TRIGGER given_t_after_update_trigger ON given",
            "triggers of given",
            Level.FAIL,
            "tube t has none there for UPDATE, so such writes are missed",
            "run as ann, or as a role with its rights: SELECT tube.tube_sync();",
        ),
        (
            "ALTER TABLE given DISABLE TRIGGER USER",
            "triggers of given",
            Level.FAIL,
            "of tube t, they don't fire for INSERT, UPDATE, DELETE, so such writes are missed",
            "run as ann: ALTER TABLE given "
            + ", ".join(
                f"ENABLE TRIGGER given_t_after_{one}_trigger" for one in ("insert", "update", "delete")
            )
            + f"; then: {BACKFILL}",
        ),
        (
            f"ALTER TABLE {PART} ENABLE REPLICA TRIGGER {TRUNCATE}",
            f"triggers of {PART}",
            Level.WARN,
            "of tube t, they don't fire for TRUNCATE by its name, so such writes are missed",
            f"run as bob: ALTER TABLE {PART} ENABLE TRIGGER {TRUNCATE}; then: {BACKFILL}",
        ),
        (
            f"DROP TRIGGER {TRUNCATE} ON {PART}",
            f"triggers of {PART}",
            Level.WARN,
            "tube t has none there for TRUNCATE by its name, so such writes are missed",
            "run as a role with the rights of ann and bob: SELECT tube.tube_sync();",
        ),
        (
            REPLICA + f"ALTER TABLE {PART} DISABLE TRIGGER {TRUNCATE}, ENABLE TRIGGER {ROWS}",
            f"triggers of {PART}",
            Level.WARN,
            f"of tube t, they don't fire for TRUNCATE, rows of replication{MISSED}",
            f"run as bob: ALTER TABLE {PART} {REPAIR}; then: {BACKFILL}",
        ),
        (
            "ALTER FUNCTION {capture}() SECURITY INVOKER",
            "owner of given",
            Level.FAIL,
            "is ann, who has not agreed to be captured by tube t: its writes are missed",
            "run as ann, or as a role with its rights: SELECT tube.tube_sync();",
        ),
    ],
)
def test_triggers_that_do_not_fire(
    any_dsn: str, ddl: str, subject: str, level: Level, finding: str, remedy: str
) -> None:
    with roles(any_dsn, "ann", "bob") as admin:
        admin.execute("SET search_path = tube, public")
        admin.execute(
            "CREATE TABLE public.given (id bigint PRIMARY KEY) PARTITION BY RANGE (id);"
            ' CREATE TABLE public."given $(x)" PARTITION OF public.given DEFAULT;'
            ' ALTER TABLE public.given OWNER TO ann; ALTER TABLE public."given $(x)" OWNER TO bob'
        )
        make_tube(admin, "t")
        attach(admin, "public.given", tube="t")
        config = configured(any_dsn)
        assert found(config, "triggers", Level.OK)
        capture = admin.execute(
            "SELECT 'tube_capture.' || quote_ident(trigger_function) FROM tube_attachment"
        )
        admin.execute(ddl.format(capture=capture.fetchall()[0][0]).encode())
        check = one(config, subject, level)
        assert (check.finding, check.remedy) == (finding, remedy)


def test_tubes_and_sinks(dsn: str, conn: psycopg.Connection, tmp_path: Path) -> None:
    more = f"""
        [tube.here.sink]
        type = "jsonl"
        path = "{tmp_path}/out"
        [tube.none.sink]
        type = "smoke-signals"
        [tube.bad.sink]
        type = "jsonl"
        path = "/nonexistent/folder/out"
        [tube.new.sink]
        type = "jsonl"
        path = "{tmp_path}/new"
        [document.new]
        table = "public.news"
        fields = ["id"]
    """
    conn.execute("CREATE TABLE public.news (id bigint PRIMARY KEY)")
    run("tube", "create", "here", "--partitions", "3", dsn=dsn)
    config = configured(dsn, more)
    assert one(config, "tube here", Level.OK).finding == "3 partitions"
    assert one(config, "tube none", Level.FAIL).remedy == "pytube tube create none"
    assert not found(config, "tube new", Level.FAIL), "to create it by hand is not what it needs"
    remedy = one(config, "document new", Level.FAIL).remedy
    assert remedy == "run `pytube plan`, then `pytube apply --backfill`"
    missing = one(config, "sink of here", Level.WARN)
    assert "there is no file" in missing.finding
    assert (
        missing.remedy
        == "start a worker: pytube worker --tube here; after a loss: pytube backfill start here"
    )
    assert not (tmp_path / "out").exists(), "the doctor only looks"
    (tmp_path / "out").touch()
    one(config, "sink of here", Level.OK)
    assert "smoke-signals" in one(config, "sink of none", Level.FAIL).finding
    assert "/nonexistent/folder" in one(config, "sink of bad", Level.FAIL).finding


def test_what_reads_the_documents(dsn: str, conn: psycopg.Connection) -> None:
    sections = "".join(
        f"""
        [tube.{name}.sink]
        type = "jsonl"
        path = "/dev/null"
        [tube.{name}.enrich]
        mode = "query"
        query = "SELECT {columns} FROM public.goods WHERE id = ANY(%(ids)s)"
        """
        for name, columns in (("good", "id, 1"), ("bad", "id"))
    )
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
    for name in ("good", "bad"):
        run("tube", "create", name, dsn=dsn)
    config = configured(dsn, sections)
    empty = one(config, "enriching of good", Level.OK)
    assert empty.finding == "prepared as postgres for no table, as none is attached; no row was read"
    for name in ("good", "bad"):
        run("tube", "attach", name, "public.goods", "--shard", "0", dsn=dsn)
    well = one(config, "enriching of good", Level.OK)
    assert well.finding == "prepared as postgres for public.goods; no row was read"
    wrong = one(config, "enriching of bad", Level.FAIL)
    assert wrong.remedy == "give two columns: the id, of type bigint, and the document"


def test_transforms(dsn: str) -> None:
    sections = "".join(
        f"""
        [tube.{name}]
        transforms = ["os.path:{function}"]
        [tube.{name}.sink]
        type = "jsonl"
        path = "/dev/null"
        """
        for name, function in (("good", "join"), ("bad", "nowhere"))
    )
    config = configured(dsn, sections)
    assert one(config, "transforms of good", Level.OK).finding == "os.path:join: there, and not called"
    wrong = one(config, "transforms of bad", Level.FAIL)
    assert wrong.finding == 'key tube.bad.transforms = "os.path:nowhere": module os.path has no nowhere'


class TestBroker:
    MORE = '[kafka]\nbootstrap_servers = "{}"\n[tube.t.sink]\ntype = "jsonl"\npath = "/dev/null"\n'

    def test_down(self, dsn: str, dead_broker: str) -> None:
        check = one(configured(dsn, self.MORE.format(dead_broker)), "broker", Level.FAIL)
        assert f"{dead_broker} does not answer" in check.finding

    def test_a_bad_option(self, dsn: str) -> None:
        more = self.MORE.format("127.0.0.1:1").replace("[tube", 'options = { "no.such" = "hunter2" }\n[tube')
        check = one(configured(dsn, more), "broker", Level.FAIL)
        assert "refuses an option" in check.finding
        assert "hunter2" not in repr(check)

    def test_mock(self, dsn: str, kafka_mock: str) -> None:
        run("tube", "create", "t", dsn=dsn)
        one(configured(dsn, self.MORE.format(kafka_mock)), "broker", Level.OK)

    def test_real(self, dsn: str, kafka_real: RealKafka) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        run("tube", "create", "t", "--partitions", "2", dsn=dsn)
        more = f'[worker]\ninstallation = "{psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]}"\n'
        config = configured(dsn, more + self.MORE.format(kafka_real.bootstrap))
        topic = config.leader_topic("t")
        assert one(config, "topic of t", Level.OK).finding == f"{topic} is missing; a worker will give it 2"
        admin = AdminClient({"bootstrap.servers": kafka_real.bootstrap})
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(10)
        finding = one(config, "topic of t", Level.OK).finding
        assert finding == f"{topic} has 1 partition; a worker will give it 2"
        assert one(config, "session timeout", Level.OK).finding == "15 s"
        long = configured(
            dsn,
            "[worker]\nsession_timeout = 3600\n" + self.MORE.format(kafka_real.bootstrap),
        )
        assert "to 1800 s" in one(long, "session timeout", Level.FAIL).finding


class TestCommand:
    def test_exit_codes(self, dsn: str, bare_dsn: str) -> None:
        assert "ok   server: Postgres 18" in run("doctor", dsn=dsn).stdout
        failed = run("doctor", dsn=bare_dsn, code=1)
        assert "-> run `pytube install`" in failed.stdout
        assert "checks that fail: 1 of" in failed.stderr

    def test_the_database_is_that_of_the_worker(self, dsn: str, bare_dsn: str, tmp_path: Path) -> None:
        (tmp_path / "pytube.toml").write_text(f'[postgres]\ndsn = "{dsn}"\n')

        def first(*options: str, dsn: str, folder: Path | None = None, code: int = 0) -> Any:
            return run_json("doctor", *options, dsn=dsn, folder=folder, code=code)[0]["finding"]

        ours, bare = (psycopg.conninfo.conninfo_to_dict(each)["dbname"] for each in (dsn, bare_dsn))
        said = first(dsn=bare_dsn, folder=tmp_path)
        assert said.startswith(f"database {ours} at 127.0.0.1:")
        assert said.endswith(f", as postgres, answers ({tmp_path}/pytube.toml)")
        said = first("--dsn", bare_dsn, dsn=dsn, folder=tmp_path, code=1)
        assert said.startswith(f"database {bare} at ")
        assert "not what a worker would use" in said
        assert first(dsn=dsn).endswith("answers (PYTUBE_DSN)")

    def test_a_named_database_has_the_schema_of_the_file(
        self, dsn: str, bare_dsn: str, tmp_path: Path
    ) -> None:
        run("--schema", "pods", "install", dsn=bare_dsn)
        hosts = f'[postgres.hosts.eu]\ndsn = "{dsn}"\n[postgres.hosts.us]\ndsn = "{bare_dsn}"\n'
        for text in (f'[postgres]\ndsn = "{dsn}"\n', hosts):
            (tmp_path / "pytube.toml").write_text(f'{text}schema = "pods"\n')
            checks = run_json("doctor", "--dsn", bare_dsn, folder=tmp_path)
            assert [each["level"] for each in checks if each["subject"] == "SQL"] == ["ok"]
        refused = run_json("doctor", "--dsn", bare_dsn, "--schema", "tube", folder=tmp_path, code=1)
        assert "fail" in [check["level"] for check in refused]

    def test_json(self, dsn: str) -> None:
        checks = run_json("doctor", dsn=dsn)
        assert {"subject", "level", "finding", "remedy", "kind"} == set(checks[0])


def test_parts_without_triggers_are_one_finding_and_names_can_be_pasted(bare_dsn: str) -> None:
    """In a schema whose name has to be quoted."""
    run("--schema", "My tubes", "install", dsn=bare_dsn)
    config = configured(bare_dsn, '[tube.t.sink]\ntype = "jsonl"\npath = "/dev/null"\n')
    config = config.model_copy(
        update={"postgres": config.postgres.model_copy(update={"schema_name": "My tubes"})}
    )
    with psycopg.connect(bare_dsn, autocommit=True, options='-c search_path="My\\ tubes",public') as conn:
        conn.execute("CREATE TABLE public.log (id int, day int) PARTITION BY LIST (day)")
        for day in range(5):
            conn.execute(f"CREATE TABLE public.log_{day} PARTITION OF public.log FOR VALUES IN ({day})")
        conn.execute("SELECT tube_ensure_exists('t'), tube_table_ensure_attached('t', 'public.log', 0)")
        for day in range(5):
            conn.execute(f"DROP TRIGGER log_{day}_t_after_update_trigger ON public.log_{day}")
        check = one(config, "triggers of 5 parts of log", Level.WARN)
        assert check.finding == (
            "tube t has none there for UPDATE by their names (log_0, log_1, log_2, …), "
            "so such writes are missed"
        )
        assert str(check.remedy).endswith(', or as a role with its rights: SELECT "My tubes".tube_sync();')
