"""The commands that administer and look, against a server."""

from __future__ import annotations

import json
import re
import signal
import threading
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from pytube.db.version import needed
from pytube.errors import RelatedTables
from pytube.tubes.admin import Tubes
from tests.conftest import Connect
from tests.helpers.cli import run, run_in_terminal, run_json, start
from tests.helpers.waiting import LIMIT, wait_until


@pytest.fixture
def table(conn: psycopg.Connection) -> str:
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, name text)")
    return "public.goods"


def queue_indexes(conn: psycopg.Connection) -> list[tuple[str, bool]]:
    """The indexes of the tube `t` that serve its partitions, and whether they are valid."""
    return conn.execute(
        "SELECT pg_get_indexdef(indexrelid), indisvalid FROM pg_index"
        " WHERE indrelid = 'tube.t'::regclass AND pg_get_indexdef(indexrelid) ~ 'shard.* % '"
        " ORDER BY indexrelid"
    ).fetchall()


class TestInstall:
    def test_install_upgrade_uninstall(self, bare_dsn: str) -> None:
        said = run("install", dsn=bare_dsn).stdout
        assert said == (
            f"installed: version {needed()} in the schema tube, "
            "with the roles tube_admin, tube_worker, tube_writer and tube_monitor\n"
            "event triggers: made; workers follow changes of attached tables at once\n"
        )
        assert run("upgrade", dsn=bare_dsn).stdout == said
        run("install", "--schema", "other", dsn=bare_dsn)
        run("tube", "create", "t", "--schema", "other", dsn=bare_dsn)
        assert run_json("tube", "list", dsn=bare_dsn) == []
        assert run("uninstall", dsn=bare_dsn).stdout == "uninstalled from the schema tube\n"
        assert "run `pytube install`" in run("tube", "list", dsn=bare_dsn, code=4).stderr
        assert len(run_json("tube", "list", "--schema", "other", dsn=bare_dsn)) == 1

    def test_uninstall_refused_while_pods_wait(self, dsn: str, conn: psycopg.Connection) -> None:
        run("tube", "create", "busy", dsn=dsn)
        conn.execute("SELECT busy_touch(0, '{1}', 'T')")
        refused = run("uninstall", dsn=dsn, code=2).stderr
        assert "there are pods in the tubes 'busy' " in refused
        assert "or drop everything with --force.)" in refused
        run("uninstall", "--force", dsn=dsn)

    def test_a_wrong_password_is_not_repeated(self, dsn: str) -> None:
        wrong = psycopg.conninfo.make_conninfo(dsn, password="hunter2", user="nobody_there")
        assert "hunter2" not in run("install", dsn=wrong, code=3).output


class TestTubes:
    def test_from_create_to_drop(self, dsn: str, conn: psycopg.Connection, table: str) -> None:
        run("tube", "create", "es-live", "--partitions", "2", "--predicate", "id > 0", dsn=dsn)
        run("tube", "attach", "es-live", table, "--shard", "4", "--shards", "8", dsn=dsn)
        listed = run_json("tube", "list", dsn=dsn)
        assert [(x["tube"], x["partitions"], x["tbl"], x["shard"], x["shards"]) for x in listed] == [
            ("es-live", 2, "public.goods", 4, 8)
        ]
        assert "public.goods" in run("tube", "list", dsn=dsn).stdout
        conn.execute("INSERT INTO public.goods SELECT i FROM generate_series(1, 16) i")
        assert conn.execute('SELECT count(*), sum(cardinality(ids)) FROM "es-live"').fetchone() == (8, 16)
        said = [run("tube", "detach", "es-live", table, dsn=dsn).stdout for _ in range(2)]
        assert said == [f"{table} is detached from es-live\n", f"{table} was not attached to es-live\n"]
        assert run_json("tube", "list", dsn=dsn)[0]["tbl"] is None
        run("tube", "drop", "es-live", "--force", dsn=dsn)
        assert "there are no tubes" in run("tube", "list", dsn=dsn).stderr

    def test_a_companion_is_listed_as_one(self, dsn: str, conn: psycopg.Connection) -> None:
        run("tube", "create", "orders", dsn=dsn)
        assert "companion" not in run("tube", "list", dsn=dsn).stdout
        conn.execute("SELECT tube_companion_ensure('orders', 'orders_relations', 'bigint')")
        listed = run_json("tube", "list", dsn=dsn)
        assert [(row["tube"], row["companion_of"]) for row in listed] == [
            ("orders", None),
            ("orders_relations", "orders"),
        ]
        assert "companion of" in run("tube", "list", dsn=dsn).stdout
        assert "is a companion" in run("tube", "drop", "orders_relations", dsn=dsn, code=2).stderr
        run("tube", "drop", "orders", dsn=dsn)
        assert run_json("tube", "list", dsn=dsn) == []

    def test_the_simplest_attach(self, dsn: str, conn: psycopg.Connection, table: str) -> None:
        run("tube", "create", "t", dsn=dsn)
        said = run("tube", "attach", "t", table, dsn=dsn).stdout
        assert said == "public.goods is attached to t by id: it is the primary key\n"
        run("tube", "attach", "t", table, "--shard", "7", "--shards", "2", "--force", dsn=dsn)
        conn.execute("CREATE SCHEMA sh0042 CREATE TABLE t (id int PRIMARY KEY)")
        run("tube", "attach", "t", "sh0042.t", dsn=dsn)
        assert [(row["shard"], row["shards"]) for row in run_json("tube", "list", dsn=dsn)] == [
            (7, 2),
            (42, 1),
        ]

    def test_the_column_that_is_a_key(self, dsn: str, conn: psycopg.Connection) -> None:
        conn.execute("CREATE TABLE public.loose (pk int PRIMARY KEY, id int)")
        run("tube", "create", "t", dsn=dsn)
        by_key = run("tube", "attach", "t", "public.loose", dsn=dsn).stdout
        assert by_key == "public.loose is attached to t by pk: it is the primary key\n"
        run("tube", "detach", "t", "public.loose", dsn=dsn)
        by_name = run("tube", "attach", "t", "public.loose", "--id-col", "id", dsn=dsn).stdout
        assert by_name == "public.loose is attached to t by id: no index proves that it is unique\n"
        assert [row["id_col"] for row in run_json("tube", "list", dsn=dsn)] == ["id"]
        again = run("tube", "attach", "t", "public.loose", dsn=dsn).stdout
        assert again == "public.loose in tube t is unchanged\n", "a column that is not given stays"
        refused = run("tube", "attach", "t", "public.loose", "--id-col", "pk", dsn=dsn, code=2).stderr
        assert "public.loose is not changed (id column id -> pk)" in refused

    def test_what_is_not_given_stays_attached(self, dsn: str, conn: psycopg.Connection, table: str) -> None:
        def attach(*options: str, code: int = 0) -> str:
            result = run("tube", "attach", "t", table, *options, dsn=dsn, code=code)
            return result.stdout if code == 0 else result.stderr.splitlines()[-1]

        def how() -> tuple[object, ...] | None:
            return conn.execute(
                "SELECT shard, shards, id_col, columns::text, replica FROM tube_list() WHERE tube = 't'"
            ).fetchone()

        run("tube", "create", "t", dsn=dsn)
        attach("--shards", "16", "--columns", "name", "--replica", "--id-col", "id")
        assert attach() == f"{table} in tube t is unchanged\n"
        assert attach("--shards", "16", "--shard", "0") == f"{table} in tube t is unchanged\n"
        assert how() == (0, 16, "id", "{name}", True)
        refused = attach("--shards", "1", code=2)
        assert refused == (
            f"pytube: {table} is not changed (shards 0 to 15 -> 0): each of its rows would have a document "
            "under another key; give --force, and then run `pytube backfill start t "
            "--table public.goods`, which writes the documents under the new keys and deletes the others by "
            "its sweep, but for those in shards that the table gives up: delete these at the sink"
            "; more: docs/errors.md#keyswouldchange"
        )
        assert attach("--shards", "32", code=2).endswith(
            "and deletes the others by its sweep; more: docs/errors.md#keyswouldchange"
        )
        assert how() == (0, 16, "id", "{name}", True)
        assert attach("--shards", "32", "--force") == (
            f"{table} in tube t is changed: shards 0 to 15 -> 0 to 31\n"
            "to bring the documents up to date, run: pytube backfill start t --table public.goods\n"
        )
        assert attach("--columns", "id, name") == (
            f"{table} in tube t is changed: columns that count name -> id, name\n"
        )
        assert attach("--columns", "name,id") == f"{table} in tube t is unchanged\n", "they are a set"
        assert attach("--columns", "", "--no-replica") == (
            f"{table} in tube t is changed: columns that count id, name -> all, replica yes -> no\n"
        )
        assert how() == (0, 32, "id", None, False)

    def test_shards_that_are_no_numbers_of_postgres(self, dsn: str, table: str) -> None:
        run("tube", "create", "t", dsn=dsn)
        for option in ("--shard", "--shards"):
            refused = run("tube", "attach", "t", table, option, "2147483648", dsn=dsn, code=2).stderr
            assert "shards are numbers up to 2147483647, not 2147483648" in refused

    def test_a_second_table_of_a_spread_one(self, dsn: str, conn: psycopg.Connection, table: str) -> None:
        """Each command that a refusal names works."""
        conn.execute("CREATE TABLE public.notes (id int PRIMARY KEY, goods int)")
        run("tube", "create", "t", dsn=dsn)
        run("tube", "attach", "t", table, "--shards", "16", dsn=dsn)

        def refused(*options: str) -> list[str]:
            said = run("tube", "attach", "t", "public.notes", *options, dsn=dsn, code=2).stderr
            assert "public.goods has the shards 0 to 15 of tube 't'" in said
            return re.findall("`pytube (.*?)`", said)

        for options in ((), ("--shard", "1"), ("--shard", "1", "--id-col", "goods"), ("--shards", "4")):
            related, own = refused(*options)
            assert related == "tube attach t public.notes --shard 0 --shards 16 --id-col COLUMN"
            assert own == "tube attach t public.notes --shard 16" + (
                " --shards 4" if "--shards" in options else ""
            )
            said = run(*own.split(), dsn=dsn).stdout
            assert said == "public.notes is attached to t by id: it is the primary key\n"
            run("tube", "detach", "t", "public.notes", dsn=dsn)
            said = run(*related.replace("COLUMN", "goods").split(), dsn=dsn).stdout
            assert said == "public.notes is attached to t by goods: it holds ids of public.goods\n"
            run("tube", "detach", "t", "public.notes", dsn=dsn)
        said = run("tube", "attach", "t", "public.notes", "--id-col", "goods", dsn=dsn).stdout
        assert said == "public.notes is attached to t by goods: it holds ids of public.goods\n"
        again = run("tube", "attach", "t", "public.notes", dsn=dsn).stdout
        assert again == "public.notes in tube t is unchanged\n"
        moved = run("tube", "attach", "t", table, "--shards", "32", dsn=dsn, code=2).stderr
        assert "public.notes is related to it, so both need the same shards" in moved
        detach, attach = re.findall("`pytube (.*?)`", moved)
        run(*detach.split(), dsn=dsn)
        run("tube", "attach", "t", table, "--shards", "32", "--force", dsn=dsn)
        run(*attach.split(), dsn=dsn)
        assert [row["shards"] for row in run_json("tube", "list", dsn=dsn)] == [32, 32]
        heir = run("tube", "attach", "t", table, "--shard", "99", dsn=dsn, code=2).stderr
        assert "under another key, and public.notes would become the root table" in heir

    def test_detach_refuses_while_tables_are_related(
        self, dsn: str, conn: psycopg.Connection, table: str
    ) -> None:
        conn.execute("CREATE TABLE public.notes (goods int); CREATE TABLE public.apart (id int PRIMARY KEY)")
        for tube in ("t", "u"):
            run("tube", "create", tube, dsn=dsn)
            run("tube", "attach", tube, table, "--shards", "4", dsn=dsn)
        run("tube", "attach", "t", "public.notes", "--id-col", "goods", dsn=dsn)
        run("tube", "attach", "t", "public.apart", "--shard", "9", dsn=dsn)
        run("tube", "detach", "u", table, dsn=dsn)
        before = run_json("tube", "list", dsn=dsn)
        refused = run("tube", "detach", "t", table, dsn=dsn, code=2).stderr
        assert "public.goods is not detached from t: public.notes, related to it, would stay" in refused
        assert "`pytube tube detach t public.notes`, or give --force" in refused
        with pytest.raises(RelatedTables):
            Tubes(conn).detach(None, table)
        assert run_json("tube", "list", dsn=dsn) == before
        forced = run("tube", "detach", "t", table, "--force", dsn=dsn)
        assert forced.stdout == f"{table} is detached from t\n"
        assert "public.notes was related and is now the root table of shards 0 to 3" in forced.stderr
        run("tube", "detach", "t", "public.notes", dsn=dsn)

    def test_a_second_table_is_not_related_by_accident(
        self, dsn: str, conn: psycopg.Connection, table: str
    ) -> None:
        conn.execute("CREATE TABLE public.notes (id int PRIMARY KEY, goods int)")
        run("tube", "create", "t", dsn=dsn)
        conn.execute("CREATE TABLE public.more (id int PRIMARY KEY)")
        run("tube", "attach", "t", table, dsn=dsn)
        run("tube", "attach", "t", "public.more", "--shard", "1", "--shards", "2", dsn=dsn)
        refused = run("tube", "attach", "t", "public.notes", dsn=dsn, code=2).stderr
        assert refused.splitlines()[-1] == (
            "pytube: public.notes is not attached: public.goods has the shard 0 of tube 't'; if a column of "
            "public.notes holds ids of public.goods, name it: `pytube tube attach t public.notes --shard 0 "
            "--shards 1 --id-col COLUMN`; else give public.notes separate shards: "
            "`pytube tube attach t public.notes --shard 3`; more: docs/errors.md#invalidshard"
        )
        assert len(run_json("tube", "list", dsn=dsn)) == 2
        run("tube", "attach", "t", "public.notes", "--shard", "3", dsn=dsn)
        run("tube", "detach", "t", "public.notes", dsn=dsn)
        said = run("tube", "attach", "t", "public.notes", "--shard", "0", "--id-col", "goods", dsn=dsn).stdout
        assert said == "public.notes is attached to t by goods: it holds ids of public.goods\n"

    def test_drop_is_refused_while_something_would_be_lost(
        self, dsn: str, conn: psycopg.Connection, table: str
    ) -> None:
        run("tube", "create", "t", dsn=dsn)
        run("tube", "attach", "t", table, dsn=dsn)
        conn.execute("INSERT INTO public.goods SELECT generate_series(1, 600)")
        refused = run("tube", "drop", "t", dsn=dsn, code=2).stderr
        assert refused == (
            "pytube: tube 't' is not dropped: attached tables: 1; pods that wait: 3; ids in them: 600 "
            "(Detach its tables, let the workers drain it, and retry or discard the parked documents; or "
            "drop everything: --force.); more: docs/errors.md#tubesnotempty\n"
        )
        assert run("tube", "drop", "t", "--force", dsn=dsn).stdout == "tube t is dropped\n"
        assert "there is no tube 't'" in run("tube", "drop", "t", "--force", dsn=dsn, code=2).stderr

    def test_create_says_what_it_did(self, dsn: str) -> None:
        def say(*options: str) -> str:
            return run("tube", "create", "t", *options, dsn=dsn).stdout

        assert say("--partitions", "2") == "tube t is created: partitions 2, keys bigint\n"
        assert say() == "tube t is unchanged\n"
        assert say("--partitions", "2") == "tube t is unchanged\n"
        changed = "tube t is changed: partitions 2 -> 3, predicate none -> id > 0\n"
        assert say("--partitions", "3", "--predicate", "id > 0") == changed
        assert say("--predicate", "") == "tube t is changed: predicate id > 0 -> none\n"

    def test_a_related_table_and_columns_that_count(
        self, dsn: str, conn: psycopg.Connection, table: str
    ) -> None:
        conn.execute("CREATE TABLE public.prices (goods bigint, price int, note text)")
        conn.execute("INSERT INTO public.prices VALUES (7, 1, ''), (8, 1, '')")
        run("tube", "create", "t", dsn=dsn)
        run("tube", "attach", "t", table, "--shard", "0", "--replica", dsn=dsn)
        options = ("--id-col", "goods", "--columns", "goods, price")
        run("tube", "attach", "t", "public.prices", "--shard", "0", *options, dsn=dsn)
        assert [row["id_col"] for row in run_json("tube", "list", dsn=dsn)] == ["id", "goods"]
        conn.execute("UPDATE public.prices SET note = 'dear' WHERE goods = 7")
        conn.execute("UPDATE public.prices SET price = 2 WHERE goods = 8")
        assert conn.execute("SELECT ids FROM t").fetchall() == [([8],)]
        assert conn.execute("SELECT replica FROM tube_list() WHERE root").fetchone() == (True,)

    def test_what_is_not_given_stays(self, dsn: str) -> None:
        run("tube", "create", "t", "--partitions", "4", "--predicate", "true", dsn=dsn)
        run("tube", "create", "t", dsn=dsn)
        row = run_json("tube", "list", dsn=dsn)[0]
        assert (row["partitions"], row["predicate"]) == (4, "true")
        run("tube", "create", "t", "--predicate", "", dsn=dsn)
        assert run_json("tube", "list", dsn=dsn)[0]["predicate"] is None

    def test_keys_are_of_the_type_that_is_chosen(self, dsn: str) -> None:
        run("tube", "create", "t", "--keys", "uuid", dsn=dsn)
        run("tube", "create", "t", "--partitions", "2", dsn=dsn)
        assert run_json("tube", "list", dsn=dsn)[0]["key_type"] == "uuid"
        assert "uuid" in run("tube", "list", dsn=dsn).stdout
        refused = run("tube", "create", "t", "--keys", "text", dsn=dsn, code=2)
        assert "the keys of tube 't' have the type uuid, not text" in refused.stderr
        run("tube", "create", "s", "--keys", "numeric", dsn=dsn, code=2)

    def test_repartition_builds_its_index_first(self, dsn: str, conn: psycopg.Connection) -> None:
        run("tube", "create", "t", "--partitions", "2", dsn=dsn)
        err = run("tube", "create", "t", "--partitions", "3", dsn=dsn).stderr
        (built,) = [line for line in map(json.loads, err.splitlines()) if line["level"] == "info"]
        assert (built["event"], built["tube"], built["partitions"]) == ("index_build_started", "t", 3)
        assert [valid for _, valid in queue_indexes(conn)] == [True]
        assert " % 3)" in queue_indexes(conn)[0][0]

    def test_repartition_after_a_broken_build(self, dsn: str, conn: psycopg.Connection) -> None:
        run("tube", "create", "t", dsn=dsn)
        row = conn.execute("SELECT tube_index_sql('t', 2)").fetchone()
        assert row is not None
        conn.execute(row[0])
        conn.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = (SELECT max(indexrelid) FROM pg_index)"
        )
        assert [valid for _, valid in queue_indexes(conn)] == [True, False]
        run("tube", "create", "t", "--partitions", "2", dsn=dsn)
        assert [valid for _, valid in queue_indexes(conn)] == [True]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["tube", "create", ""], "name"),
            (["tube", "create", "x" * 64], "x" * 64),
            (["tube", "create", "p", "--partitions", "0"], "partitions"),
            (["tube", "create", "p", "--partitions", "-3"], "partitions"),
            (
                ["tube", "create", "p", "--predicate", "id >"],
                "the predicate of tube 'p' is refused: syntax error",
            ),
            (["tube", "attach", "none", "public.goods", "--shard", "1"], "none"),
            (["tube", "attach", "t", "public.none", "--shard", "1"], "there is no table 'public.none'"),
            (["tube", "attach", "t", "none.goods", "--shard", "1"], "there is no table 'none.goods'"),
            (["tube", "attach", "t", "a.b.c.d", "--shard", "1"], "there is no table 'a.b.c.d'"),
            (["tube", "attach", "t", '"goods', "--shard", "1"], "there is no table"),
            (["tube", "attach", "t", "", "--shard", "1"], "table"),
            (["tube", "attach", "t", "public.goods", "--shard", "-1"], "shard"),
            (["tube", "attach", "t", "public.goods", "--shard", "1", "--shards", "0"], "shards"),
            (["tube", "attach", "t", "public.view"], "public.view can't be attached: it is a view"),
            (["tube", "attach", "t", "public.part"], "it is a partition of public.whole (Attach"),
            (
                ["tube", "attach", "t", "public.loose"],
                "(id: no index proves that it is unique); name the column by --id-col, e.g. --id-col id",
            ),
            (["tube", "drop", "none"], "there is no tube 'none' (There are: 't'.)"),
            (["park", "list", "--tube", "none"], "there is no tube 'none'"),
            (["tube", "attach", "t", "public.keyless", "--shard", "1"], "keyless"),
            (["tube", "detach", "none", "public.goods"], "none"),
            (["status", "--tube", "none"], "there is no tube 'none'"),
            (
                ["backfill", "start", "--tube", "none"],
                "there is no tube 'none'; `pytube tube list` lists all tubes; more",
            ),
            (["backfill", "start", "--tube", "t"], "no table is attached to tube 't'; more"),
        ],
        ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
    )
    def test_refused(self, dsn: str, conn: psycopg.Connection, words: list[str], message: str) -> None:
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
        conn.execute("CREATE TABLE public.keyless (a int)")
        conn.execute("CREATE TABLE public.loose (a int, id int)")
        conn.execute("CREATE VIEW public.view AS TABLE public.loose")
        conn.execute(
            "CREATE TABLE public.whole (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)"
        )
        conn.execute("CREATE TABLE public.part PARTITION OF public.whole DEFAULT")
        run("tube", "create", "t", dsn=dsn)
        before = run_json("tube", "list", dsn=dsn)
        result = run(*words, dsn=dsn, code=2)
        assert message in result.stderr
        assert result.stderr.splitlines()[-1].startswith("pytube: ")
        assert run_json("tube", "list", dsn=dsn) == before

    def test_attach_waits_for_a_busy_table_and_says_for_whom(
        self, dsn: str, conn: psycopg.Connection, table: str, connect: Connect
    ) -> None:
        run("tube", "create", "t", dsn=dsn)
        holder = connect(autocommit=False, application_name="the holder")
        holder.execute("INSERT INTO public.goods VALUES (1)")
        result = run("tube", "attach", "t", table, "--shard", "1", "--lock-timeout", "1.5", dsn=dsn, code=3)
        assert "public.goods could not be locked within 1.5 s" in result.stderr
        assert "the holder (pid" in result.stderr
        assert "idle in transaction" in result.stderr

        done = threading.Event()

        def attach() -> None:
            run("tube", "attach", "t", table, "--shard", "1", dsn=dsn)
            done.set()

        thread = threading.Thread(target=attach)
        thread.start()
        wait_until(
            lambda: (
                conn.execute(
                    "SELECT count(*) > 0 FROM pg_stat_activity"
                    " WHERE query LIKE '%ensure_attached%' AND pid <> pg_backend_pid()"
                ).fetchone()
                == (True,)
            ),
            what="the attempt to attach",
        )
        assert not done.is_set()
        holder.rollback()
        thread.join(LIMIT)
        assert done.is_set()


def lead(conn: psycopg.Connection, tube: str = "a") -> UUID:
    """Acquire partition 1 of the tube, which has 2."""
    leader = uuid4()
    conn.execute(
        "SELECT tube_leader_acquire(%(tube)s, 2, 1, %(leader)s, gen_random_uuid(), 'host-7',"
        " tube_leader_epoch(%(tube)s, 2, 1))",
        {"tube": tube, "leader": leader},
    )
    return leader


class TestLooking:
    def test_status(self, dsn: str, conn: psycopg.Connection) -> None:
        run("tube", "create", "a", "--partitions", "2", dsn=dsn)
        conn.execute("SELECT a_touch(1, '{1,2}', 'T'), a_touch(1, '{3}', 'B')")
        lead(conn)
        rows = run_json("status", dsn=dsn)
        assert [(x["partition"], x["waiting"], x["backfill"], x["leader"], x["parked"]) for x in rows] == [
            (0, 0, 0, None, 0),
            (1, 1, 1, "host-7", 0),
        ]
        assert all(row["waiting_is_exact"] and row["control"] == 0 for row in rows)
        assert rows[0]["lag"] is None
        assert 0 <= rows[1]["lag"] < 60
        assert rows[1]["epoch"] > 0
        out = run("status", "--tube", "a", dsn=dsn).stdout
        assert "host-7" in out
        assert "\tnone\t" in out

    def test_parked(self, dsn: str, conn: psycopg.Connection) -> None:
        assert run("park", "list", dsn=dsn).stderr == "nothing is parked\n"
        run("tube", "create", "a", "--partitions", "2", dsn=dsn)
        leader = lead(conn)
        items = [{"shard": 3, "id": "7", "op": "U", "seq": 9, "error": "too [bold]big", "attempts": 5}]
        conn.execute("SELECT tube_pods_park('a', 2, 1, %s, %s)", [leader, json.dumps(items)])
        rows = run_json("park", "list", dsn=dsn)
        assert [(x["tube"], x["shard"], x["id"], x["attempts"]) for x in rows] == [("a", 3, "7", 5)]
        assert "too [bold]big" in run("park", "list", "--tube", "a", dsn=dsn).stdout
        assert [x["parked"] for x in run_json("status", dsn=dsn)] == [0, 1]


class TestTerminal:
    """What a terminal shows."""

    ERROR = "the mapping wants a number where the document has a text; see https://search/errors/mapping"

    def test_all_fits_and_nothing_is_left_out(self, dsn: str, conn: psycopg.Connection) -> None:
        tube = "a_tube_with_a_long_name"
        conn.execute(
            "CREATE SCHEMA warehouse_of_1; CREATE TABLE warehouse_of_1.goods (id bigint PRIMARY KEY)"
        )
        predicate = "id > 1000 AND id < 1000000"
        run("tube", "create", tube, "--partitions", "2", "--predicate", predicate, dsn=dsn)
        run("tube", "attach", tube, "warehouse_of_1.goods", "--shard", "0", dsn=dsn)
        run("backfill", "start", "--tube", tube, dsn=dsn)
        leader = lead(conn, tube)
        items = [{"shard": 1, "id": "7", "op": "U", "seq": 9, "error": self.ERROR, "attempts": 5}]
        conn.execute("SELECT tube_pods_park(%s, 2, 1, %s, %s)", [tube, leader, json.dumps(items)])
        for words, wanted in [
            (("tube", "list"), predicate),
            (("status",), "host-7"),
            (("backfill", "status"), "delivering"),
            (("park", "list"), self.ERROR),
            (("doctor",), "Postgres"),
        ]:
            shown = run_in_terminal(*words, dsn=dsn, width=60)
            # What is wrong is said in sentences with commands, which the terminal breaks.
            lines = [line for line in shown if not line.startswith((f"{tube}: ", f"{tube} partition"))]
            assert [line for line in lines if len(line) > 60] == [], words
            assert wanted in " ".join(" ".join(lines).split()), words


class TestProcess:
    """The program itself."""

    @pytest.fixture
    def config(self, tmp_path: Path) -> Path:
        path = tmp_path / "pytube.toml"
        path.write_text(
            '[postgres]\ndsn = "${TEST_DSN}"\n[tube.t.sink]\ntype = "jsonl"\n'
            f'path = "{tmp_path}/out"\nrequest_timeout = 1\n'
        )
        return path

    def test_status_watched_as_json(self, dsn: str, config: Path) -> None:
        run("tube", "create", "t", dsn=dsn)
        process = start("status", "--watch", "--json", "--interval", "0.1", config=config, TEST_DSN=dsn)
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [line[0]["tube"] for line in lines] == ["t", "t"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
        assert "Traceback" not in out + err
        assert process.returncode == 0

    def test_status_watched_without_a_terminal(self, dsn: str, config: Path) -> None:
        run("tube", "create", "t", dsn=dsn)
        process = start("status", "--watch", "--interval", "0.1", config=config, TEST_DSN=dsn)
        assert process.stdout is not None
        heading, *lines = [process.stdout.readline().rstrip("\n").split("\t") for _ in range(3)]
        assert heading[:3] == ["time", "tube", "part"]
        assert [line[1:3] for line in lines] == [["t", "0"]] * 2
        assert len(heading) == len(lines[0])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
        assert process.returncode == 0

    def test_down_at_the_start(self, config: Path) -> None:
        down = "postgresql://app:hunter2@127.0.0.1:1/app"
        process = start("worker", config=config, TEST_DSN=down)
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 3
        assert out == ""
        assert err.splitlines()[-1].startswith("pytube: Postgres is not available: ")
        assert "hunter2" not in err
        assert "Traceback" not in err

    def test_a_worker_before_the_installation(self, bare_dsn: str, config: Path) -> None:
        process = start("worker", config=config, TEST_DSN=bare_dsn)
        _, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 4
        assert "run `pytube install`" in err

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_a_worker_in_order(
        self, dsn: str, conn: psycopg.Connection, config: Path, number: signal.Signals
    ) -> None:
        run("tube", "create", "t", dsn=dsn)
        process = start("worker", config=config, TEST_DSN=dsn)
        try:
            wait_until(
                lambda: conn.execute("SELECT count(*) FROM tube_leaders('t')").fetchone() == (1,),
                what="a leader",
            )
            process.send_signal(number)
            _, err = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
        assert process.returncode == 0, err
        assert conn.execute("SELECT outcome FROM tube_terms('t')").fetchall() == [("released",)]
        assert all(json.loads(line) for line in err.splitlines())

    def test_a_second_signal_ends_a_worker_at_once(
        self, dsn: str, conn: psycopg.Connection, config: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "hanging.py").write_text(
            "import pathlib, threading\n"
            "def send(batch):\n"
            f"    pathlib.Path({str(tmp_path / 'called')!r}).touch()\n"
            "    threading.Event().wait()\n"
        )
        text = config.read_text().replace('"jsonl"', '"callable"')
        config.write_text(text.replace(f'path = "{tmp_path}/out"', 'target = "hanging:send"'))
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY)")
        run("tube", "create", "t", dsn=dsn)
        run("tube", "attach", "t", "public.goods", "--shard", "0", dsn=dsn)
        conn.execute("INSERT INTO public.goods VALUES (1)")
        process = start("worker", config=config, TEST_DSN=dsn, PYTHONPATH=str(tmp_path))
        assert process.stderr is not None
        try:
            wait_until((tmp_path / "called").exists, what="a send")
            process.send_signal(signal.SIGTERM)
            while "stopping" not in process.stderr.readline():
                pass
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
        assert process.returncode == 143
        assert "worker_ended_at_once" in err
        assert conn.execute("SELECT count(*) FROM t").fetchone() == (1,)
