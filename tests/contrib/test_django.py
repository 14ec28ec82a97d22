"""pytube in a project of Django: its own commands, on a real database."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
import pytest
from django.db import migrations

from pytube.contrib.django import checks
from pytube.contrib.django.operations import AttachTube, DetachTube
from pytube.embedded.postgres import Postgres
from tests.conftest import Servers
from tests.docs.pages import BY_NAME
from tests.helpers.forked import Zygote
from tests.helpers.roles import as_role, database_name, roles
from tests.helpers.terms import Conn, scalar

NONE: Mapping[str, str] = MappingProxyType({})
PROJECT = "tests.contrib.django_project"
IMPORTED = (
    "django.core.management",
    "django.db.backends.postgresql.base",
    "django.db.migrations",
    "django.test.runner",
    "pytube.contrib.django.checks",
)
FILE = """
[postgres]
dsn = "${SHOP_DSN}"
[tube.orders.sink]
type = "jsonl"
path = "orders.jsonl"
[document.orders]
table = 'public."Shop Orders"'
fields = ["id", "status", "note"]
[document.orders.customer]
one = "public.shop_customer"
fields = ["name"]
"""
SAVE = """
from pytube.contrib.django.testing import captured
from tests.contrib.django_project.shop.models import Customer, Order
with captured("orders-live") as keys:
    Order.objects.create(customer=Customer.objects.create(name="Ada"), status="new")
print("captured", keys)
"""
TUBES = """
    SELECT tube, predicate, partitions, tbl::text, shard, shards,
        ARRAY(SELECT unnest(columns)::text ORDER BY 1), key_type::text
    FROM tube.tube_list() WHERE companion_of IS NULL ORDER BY tube
"""


class Project:
    """The project with a database."""

    def __init__(self, zygote: Zygote, dsn: str) -> None:
        self.dsn = dsn
        self.session = psycopg.connect(dsn, autocommit=True)
        self._zygote = zygote

    def manage(self, *arguments: str, exits: int = 0, environment: Mapping[str, str] = NONE) -> str:
        """Run a command; its output, of both streams. It fails unless the code is `exits`."""
        settings = {"DJANGO_SETTINGS_MODULE": f"{PROJECT}.settings", "SHOP_DSN": self.dsn}
        environment = {**os.environ, **settings, **environment}
        with self._zygote.start_piped("django", [*arguments, "--traceback"], environment=environment) as done:
            output = "\n".join(done.communicate(600))
            assert done.returncode == exits, output
        return output

    def check(self, environment: Mapping[str, str] = NONE) -> str:
        """What the check of the database says."""
        return self.manage("check", "--database", "default", environment=environment)

    @property
    def tubes(self) -> list[tuple[Any, ...]]:
        """Its tubes, and how the tables are attached."""
        return self.session.execute(TUBES).fetchall()


def migrate(dsn: str) -> None:
    """All migrations."""
    with closing(Zygote(IMPORTED)) as zygote:
        project = Project(zygote, dsn)
        project.manage("migrate", "--verbosity", "0")
        project.session.close()  # or its database could not be copied


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with closing(Zygote(IMPORTED)) as zygote:
        yield zygote


@pytest.fixture
def empty(zygote: Zygote, bare_dsn: str) -> Iterator[Project]:
    """With an empty database."""
    project = Project(zygote, bare_dsn)
    with project.session:
        yield project


@pytest.fixture
def migrated(zygote: Zygote, servers: Servers) -> Iterator[Project]:
    """After all migrations."""
    with servers.get(18).database(installed=False, prepare=migrate) as dsn:
        project = Project(zygote, dsn)
        with project.session:
            yield project


def is_installed(session: Conn) -> bool:
    return bool(scalar(session, "SELECT to_regnamespace('tube') IS NOT NULL"))


def test_migrate(migrated: Project) -> None:
    assert migrated.tubes == [
        ("orders", None, 4, '"Shop Orders"', 0, 16, ["customer_id", "id", "note", "status"], "bigint"),
        ("orders-live", "status <> '100%'", 1, '"Shop Orders"', 0, 16, ["customer_id", "status"], "bigint"),
    ]
    assert scalar(migrated.session, "SELECT count(*) FROM tube.tube_backfill_list('orders')") == 1
    assert "No changes detected" in migrated.manage("makemigrations", "--check", "--dry-run")
    assert "no issues" in migrated.check()


def test_migrate_backwards(migrated: Project) -> None:
    migrated.manage("migrate", "shop", "0004")
    assert [(row[0], row[-1]) for row in migrated.tubes] == [
        ("orders", "bigint"),
        ("orders-live", "bigint"),
        ("tickets", "uuid"),
    ]
    assert migrated.tubes[0][6] == ["customer_id", "id", "status"]
    assert "document orders: takes away: " in migrated.manage("migrate", "shop", "0002")
    assert [row[0] for row in migrated.tubes] == ["orders-live"]
    migrated.session.execute("SELECT tube.tube_ensure_exists('mine')")
    migrated.session.execute("INSERT INTO shop_customer VALUES (1, 'Ada')")
    migrated.session.execute("INSERT INTO \"Shop Orders\" (status, note, customer_id) VALUES ('new', '', 1)")
    said = migrated.manage("migrate", "shop", "0001")
    assert "tube orders-live is dropped with its contents: " in said
    assert "pytube's SQL stays, with its tubes and outboxes: mine" in said
    assert [row[0] for row in migrated.tubes] == ["mine"]
    migrated.manage("migrate", "shop", "0002")
    migrated.session.execute("SELECT tube.tube_drop('mine')")
    migrated.manage("migrate", "shop", "zero")
    assert not is_installed(migrated.session)


def test_a_migration_that_fails_leaves_nothing(empty: Project) -> None:
    empty.session.execute(
        "CREATE SCHEMA tube; CREATE ROLE django_stranger; ALTER SCHEMA tube OWNER TO django_stranger"
    )
    assert "belongs to django_stranger" in empty.manage("migrate", "shop", exits=1)
    empty.session.execute("DROP SCHEMA tube; DROP ROLE django_stranger")
    assert "[X] 0001_initial" in (shown := empty.manage("showmigrations", "shop"))
    assert "[ ] 0002_tube" in shown


def test_sqlmigrate_prints_what_would_run(empty: Project, postgres: Postgres) -> None:
    for name in ("0001", "0002"):
        statements = empty.manage("sqlmigrate", "shop", name)
        psql = [str(postgres.bin("psql")), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", empty.dsn]
        subprocess.run(psql, input=statements, text=True, check=True, stdout=subprocess.DEVNULL)
    by_hand = empty.tubes
    assert [row[0] for row in by_hand] == ["orders-live"]
    printed = empty.manage("sqlmigrate", "shop", "0003")
    assert "-- make tube orders: bigint keys, partitions 4" in printed
    assert "-- attach public.Shop Orders to orders by id" in printed
    printed = empty.manage("sqlmigrate", "shop", "0002", "--backwards")
    assert "tube_table_ensure_detached('orders-live', '\"Shop Orders\"')" in printed
    empty.manage("migrate", "--fake", "shop", "0001")
    empty.manage("migrate", "shop", "0002")  # the same again
    assert empty.tubes == by_hand


def test_a_role_that_is_no_superuser(empty: Project) -> None:
    """It owns the project's tables, and may create roles."""
    with roles(empty.dsn, "django_app CREATEROLE", ours="django_tube") as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {database_name(empty.dsn)} TO django_app".encode())
        admin.execute("GRANT CREATE ON SCHEMA public TO django_app")
        environment = {"SHOP_DSN": as_role(empty.dsn, "django_app"), "SHOP_SCHEMA": "django_tube"}
        empty.manage("migrate", environment=environment)
        assert "no issues" in empty.check(environment)
        assert "captured [1]" in empty.manage("shell", "--command", SAVE, environment=environment)
        empty.manage("migrate", "shop", "zero", environment=environment)
        assert scalar(admin, "SELECT to_regnamespace('django_tube') IS NULL")


def test_renamed_models_keep_their_tubes() -> None:
    declared = checks._Declared()
    declared._applied("shop", AttachTube("live", "Order", partitions=2, predicate=" a "))
    declared._applied("shop", AttachTube("live", "mail.Letter"))
    declared._applied("shop", migrations.RenameModel("Order", "Purchase"))
    assert list(declared.attached) == [("live", "mail", "letter"), ("live", "shop", "purchase")]
    declared._applied("mail", migrations.DeleteModel("Letter"))
    declared._applied("shop", AttachTube("live", "Item", partitions=4))
    assert declared.settings == {"live": {"partitions": 4, "predicate": "a"}}
    declared._applied("shop", DetachTube("live", "Item"))
    declared._applied("shop", DetachTube("live", "Purchase"))
    assert (declared.attached, declared.settings) == ({}, {})


def test_other_databases_are_left_alone(empty: Project, servers: Servers) -> None:
    with servers.get(18).database(installed=False) as other:
        empty.manage("migrate", "--database", "other", environment={"OTHER_DSN": other})
        assert "no issues" in empty.manage("check", "--database", "other", environment={"OTHER_DSN": other})
        with psycopg.connect(other) as session:
            assert not is_installed(session)
            assert scalar(session, "SELECT count(*) FROM django_migrations WHERE app = 'shop'") == 5
    assert not is_installed(empty.session)


def test_the_check_finds_drift(migrated: Project, tmp_path: Path) -> None:
    file = tmp_path / "pytube.toml"
    file.write_text(FILE)
    environment = {"SHOP_CONFIG": str(file)}
    migrated.session.execute("SELECT tube.tube_ensure_exists('Shop Orders')")  # like a table
    assert "no issues" in migrated.check(environment)
    migrated.session.execute("SELECT tube.tube_table_ensure_detached('orders-live', '\"Shop Orders\"')")
    file.write_text(FILE.replace(', "note"', ""))
    found = migrated.check(environment)
    assert 'public."Shop Orders" is not attached to tube orders-live, as a migration declares' in found
    assert "document.orders is not as it is declared; to be done: " in found
    assert "HINT: `pytube plan orders` shows more" in found
    migrated.session.execute("SELECT tube.tube_table_ensure_attached('orders-live', '\"Shop Orders\"', 0, 8)")
    migrated.session.execute("SELECT tube.tube_ensure_exists('orders-live', 1, '')")
    migrated.session.execute("SELECT tube.tube_table_ensure_detached('orders', '\"Shop Orders\"')")
    found = migrated.check()
    assert "is attached to tube orders-live in another way than a migration declares" in found
    assert "changes it: predicate none -> status <> '100%'" in found
    assert "shards 0 to 7 -> 0 to 15; columns that count all -> customer_id, status" in found
    assert (
        "document.orders is not as it is declared; to be done: attach public.Shop Orders to orders" in found
    )


def test_the_check_after_fields_were_renamed(migrated: Project) -> None:
    stock = {"SHOP_STOCK": "1"}
    migrated.manage("migrate", "stock", environment=stock)
    for column in ("number", "amount"):  # before capture has followed, and after
        of_tube = "SELECT columns FROM tube.tube_list() WHERE tube = 'parts-live'"
        assert column in scalar(migrated.session, of_tube)
        found = migrated.check(stock)
        assert found.count("WARNING") == 1
        assert "another way" not in found
        assert "document.parts can't be applied" in found
        assert "HINT: Correct it in the file, or by a migration with another Document." in found
        assert "does it" not in found
        migrated.session.execute("SELECT tube.tube_sync()")
    migrated.session.execute("SELECT tube.tube_table_ensure_attached('parts-moved', 'public.stock_part', 0)")
    assert "columns that count all -> place_id" in migrated.check(stock)


def test_the_check_says_what_it_did_not_check(empty: Project, tmp_path: Path) -> None:
    # Migrations that are still to run are no drift.
    assert "no issues" in empty.check()
    empty.manage("migrate", "--fake", "shop")
    assert "(pytube.W003) pytube is not installed" in empty.check()
    # Without a database, Django checks none.
    away = {"SHOP_DSN": f"host={tmp_path} dbname=shop"}
    assert "no issues" in empty.manage("check", environment=away)
    found = empty.check(away)
    assert "(pytube.W002) the database was not checked for drift: connection" in found
    found = empty.check({"SHOP_CONFIG": str(tmp_path / "none.toml")})
    assert "(pytube.W003)" in found


def test_the_projects_own_tests(empty: Project) -> None:
    """Each process has a copy of the database that the migrations have made."""
    done = empty.manage("test", PROJECT, "--parallel", "2", "--pattern", "tests.py", "--noinput")
    assert "Ran 8 tests" in done
    assert "OK" in done
    assert not is_installed(empty.session)


def test_its_page(empty: Project) -> None:
    """The examples in Python can be imported, and the commands are Django's."""
    page = BY_NAME["docs/django.md"]
    names: dict[str, Any] = {"INSTALLED_APPS": [], "BASE_DIR": Path()}
    for block in page.blocks("python"):
        exec(compile(block.text, str(block), "exec"), names)  # noqa: S102 # its example
    assert names["INSTALLED_APPS"] == ["pytube.contrib.django"]
    commands = empty.manage("help", "--commands").split()
    for block in page.blocks("sh"):
        for line in block.text.splitlines():
            assert line.split()[:2] == ["python", "manage.py"]
            assert line.split()[2] in commands
