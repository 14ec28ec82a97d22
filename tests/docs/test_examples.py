"""Every example on every page works; docs/sinks.md has more in tests/unit/test_sink_docs.py."""

from __future__ import annotations

import configparser
import json
import shlex
import signal
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pytube.cli.program import cli
from pytube.config import parse
from pytube.embedded.postgres import Postgres
from pytube.model import Token
from pytube.sinks.parts import Parts, part_id
from pytube.targets import import_target
from pytube.transforms import DELETE, KEEP, Change
from tests.docs.pages import BY_NAME, PAGES, Block, table_rows
from tests.docs.shell import Shell
from tests.helpers.cli import run
from tests.helpers.roles import drop_roles
from tests.helpers.waiting import wait_until

ORDERS = """
    CREATE TABLE public.orders (id bigint PRIMARY KEY, total numeric);
    CREATE TABLE public.items (id bigint PRIMARY KEY, order_id bigint);
    INSERT INTO public.orders SELECT i, i FROM generate_series(1, 20) i;
"""
ATTACHED = """
    SELECT tube.tube_ensure_exists('es-live', 4);
    SELECT tube.tube_table_ensure_attached('es-live', 'public.orders', 0, 16);
"""
SETTINGS = """
    [postgres]
    dsn = "${PYTUBE_DSN}"
    [tube."es-live".sink]
    type = "jsonl"
    path = "es-live.jsonl"
"""
LISTINGS = """
    CREATE TABLE shop.sellers (id bigint PRIMARY KEY, name text);
    CREATE TABLE shop.listings (
        id bigint PRIMARY KEY, title text, deleted_at timestamptz, seller_id bigint REFERENCES shop.sellers);
    CREATE TABLE shop.categories (id bigint PRIMARY KEY, name text);
    CREATE TABLE shop.listing_categories (
        listing_id bigint REFERENCES shop.listings, category_id bigint REFERENCES shop.categories,
        PRIMARY KEY (listing_id, category_id));
    CREATE TABLE shop.bids (id bigint PRIMARY KEY, listing_id bigint REFERENCES shop.listings);
    CREATE TABLE shop.comments (
        id bigint PRIMARY KEY, listing_id bigint REFERENCES shop.listings, body text, created_at timestamptz,
        parent_id bigint REFERENCES shop.comments);
    CREATE TABLE shop.attachments (id bigint PRIMARY KEY, owner_type text, owner_id bigint, url text);
"""
PLAN = """\
tube stock: new
  + make tube stock: bigint keys, partitions 4
  + attach public.orders to stock by id; each UPDATE counts; shards 0 to 15
  + attach public.items to stock by order_id; columns that count: order_id; shards 0 to 15
  ~ note that the file declares it so

  table            followed by  shards   an UPDATE counts that changes
  public.orders    id           0 to 15  anything
  └─ public.items  order_id              order_id

  ! documents at the sink stay as they are until a row changes: pytube apply --backfill \
has workers send all of them

outbox events: new
  + make outbox events: values text, partitions 4
  ~ note that the file declares it so

pytube apply does these steps
"""
"""Of the example of tables in docs/configuration.md."""
ROLES = ("pytube_worker", "pytube_monitor")
OF_SECURITY = (
    "shop_installer",
    "shop_owner",
    "shop_admin",
    "shop_worker",
    "shop_writer",
    "shop_monitor",
    "shop_nobody",
)
KNOWN_LANGUAGES = {"sh", "sql", "toml", "python", "json", "ini", "text"}


@pytest.fixture
def shell(
    tmp_path: Path, bare_dsn: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    """A folder, and a database with the tables that pages speak of."""
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path, bare_dsn, postgres.bin("psql").parent)
    shell.psql(ORDERS)
    yield shell
    shell.close()


def run_blocks(shell: Shell, page: str) -> None:
    for block in BY_NAME[page].blocks("sh", "sql"):
        _run(shell, block)


def test_readme(shell: Shell) -> None:
    """The quick start, with the document as it is printed; its last command fails if the copy differs."""
    run_blocks(shell, "README.md")
    (shown,) = [block.text for block in BY_NAME["README.md"].blocks("json")]
    with psycopg.connect(shell.dsn) as conn:
        found = conn.execute("SELECT doc::text FROM public.orders_copy WHERE id = 7").fetchone()
    assert found == (shown.rstrip(),)


def test_documents(shell: Shell) -> None:
    """The page's example, with the copy as it is printed; then a renamed column."""
    first, *rest = BY_NAME["docs/documents.md"].blocks("sh", "sql")
    for block in (first, rest[0]):
        _run(shell, block)

    def copied() -> dict[int, Any]:
        with psycopg.connect(shell.dsn) as conn:
            row = conn.execute("SELECT to_regclass('public.orders_copy')").fetchone()
            if row == (None,):
                return {}
            return dict(conn.execute("SELECT id, doc FROM public.orders_copy").fetchall())

    wait_until(lambda: set(copied()) == {7, 8}, what="the copy is filled")
    _run(shell, rest[1])
    (shown,) = [json.loads(block.text) for block in BY_NAME["docs/documents.md"].blocks("json")]
    wait_until(lambda: copied()[7] == shown, what="the order has the new name of its product")
    for block in rest[2:]:
        _run(shell, block)
    assert "orders: nothing to do" in run("apply", dsn=shell.dsn, folder=shell.folder).stdout


def test_the_plans_of_documents(shell: Shell) -> None:
    """What `plan` prints of the page's first example; and that of its second one nothing is refused."""
    page = BY_NAME["docs/documents.md"]
    run("install", dsn=shell.dsn)
    first_block, second_block = page.blocks("sh")[:2]
    _run(shell, first_block)
    first = second_block.text.partition("<<'END'\n")[2].partition("\nEND\n")[0]
    file = shell.folder / "pytube.toml"
    file.write_text(first)
    (printed,) = page.blocks("text")
    assert run("plan", dsn=shell.dsn, folder=shell.folder).stdout == printed.text
    shell.psql(LISTINGS)
    (second,) = page.blocks("toml")
    file.write_text(f'[postgres]\ndsn = "{shell.dsn}"\n{second.text}')
    assert "document listings: new" in run("plan", dsn=shell.dsn, folder=shell.folder).stdout


def test_one_file_says_it_all(shell: Shell) -> None:
    """What `plan` prints of the example, and that `apply` leaves nothing to do."""
    page = BY_NAME["docs/configuration.md"]
    (block,) = page.blocks("sh")
    run("install", dsn=shell.dsn)
    first = block.text.partition("<<'END'\n")[2].partition("\nEND\n")[0]
    (shell.folder / "pytube.toml").write_text(first)
    assert run("plan", dsn=shell.dsn, folder=shell.folder).stdout == PLAN
    _run(shell, block)
    assert run("plan", dsn=shell.dsn, folder=shell.folder).stdout.splitlines()[-1] == "nothing to do"


def _run(shell: Shell, block: Block) -> None:
    if block.language == "sh":
        shell.run(block)
    else:
        shell.psql(block.text)


def test_contributing(shell: Shell) -> None:
    run_blocks(shell, "CONTRIBUTING.md")


@pytest.mark.parametrize("page", ["docs/concepts.md", "docs/sql.md"])
def test_pages_of_sql(shell: Shell, page: str) -> None:
    run("install", dsn=shell.dsn)
    shell.psql(ATTACHED)
    run_blocks(shell, page)


def test_outbox(shell: Shell) -> None:
    run("install", dsn=shell.dsn)
    with psycopg.connect(shell.dsn, autocommit=True) as connection:
        for block in BY_NAME["docs/outbox.md"].blocks("sh", "sql", "python"):
            match block.language:
                case "sh":
                    shell.run(block)
                case "sql":
                    shell.psql(block.text)
                case _:
                    exec(block.text, {"connection": connection})  # noqa: S102 - that is the test
        row = connection.execute("SELECT count(*), count(kafka_value) FROM tube.orders").fetchone()
    assert row == (7, 6)


@pytest.fixture
def fan_out(bare_dsn: str) -> Iterator[None]:
    """Takes the roles of the page away."""
    yield
    with psycopg.connect(bare_dsn, autocommit=True) as admin:
        admin.execute("DROP OWNED BY fan_out, consumer")
        admin.execute("DROP ROLE fan_out, toucher, consumer")


@pytest.mark.usefixtures("fan_out")
def test_coming_from_pg_tube(shell: Shell) -> None:
    """An installation of ours in another schema stands for pg-tube, which has the same names."""
    page = BY_NAME["docs/coming-from-pg-tube.md"]
    run("install", dsn=shell.dsn)
    run("install", "--schema", "pgtube", dsn=shell.dsn)
    for tube in ("es_live", "es_spare"):
        shell.psql(f"SELECT pgtube.tube_ensure_exists('{tube}', 4)")
        shell.psql(f"SELECT pgtube.tube_table_ensure_attached('{tube}', 'public.orders', 7)")
    shell.psql("SELECT setval('pgtube.tube_seq', 5000)")
    blocks = page.blocks("sh", "sql")
    install = next(place for place, block in enumerate(blocks) if "install.sql" in block.text)
    grants, steps = blocks[:install], blocks[install:]
    for block in grants:
        shell.psql(block.text)
    for block in steps:
        if block.language == "sh":
            shell.run(block)
            if "backfill start" in block.text:  # the page has three ways, and each shall do
                run("backfill", "cancel", "--tube", "es_live", dsn=shell.dsn)
        else:
            half_moved(shell, block)
            shell.psql(block.text)
        shell.psql("UPDATE public.orders SET total = total + 1 WHERE id = 1")
    with psycopg.connect(shell.dsn) as conn:
        kept = "SELECT tube, shard FROM {}.tube_list() WHERE tbl IS NOT NULL"
        assert conn.execute(kept.format("tube")).fetchall() == []
        assert conn.execute(kept.format("pgtube")).fetchall() == [("es_live", 7), ("es_spare", 7)]
        counted = "SELECT count(*) FROM pgtube.es_live, unnest(ids) AS id WHERE id = 1"
        # Each update, wherever it was caught, and the backfill: all was handed over.
        assert conn.execute(counted).fetchall() == [(len(steps) + 1,)]
        # Ours were above all of theirs, and theirs are above ours again.
        seqs = "SELECT min(seq), max(seq) FROM {}.es_live"
        (first_of_theirs, last_of_theirs) = conn.execute(seqs.format("pgtube")).fetchone() or (0, 0)
        (first_of_ours, last_of_ours) = conn.execute(seqs.format("tube")).fetchone() or (0, 0)
        assert first_of_theirs < 1_000_005_000 < first_of_ours < last_of_ours < last_of_theirs


def half_moved(shell: Shell, block: Block) -> None:
    """A move that forgets a tube of the table is refused; it is rolled back."""
    if block.text.startswith("BEGIN") and "NULL" in block.text:
        with pytest.raises(AssertionError, match="there is a function public.orders_touch"):
            shell.psql(block.text.replace("NULL", "'es_live'"))


@pytest.fixture
def roles(bare_dsn: str) -> Iterator[None]:
    """Takes the roles of the page away: they belong to the server, not to the database."""
    yield
    with psycopg.connect(bare_dsn, autocommit=True) as admin:
        drop_roles(admin, [*ROLES, *OF_SECURITY])


@pytest.mark.usefixtures("roles")
def test_security(shell: Shell) -> None:
    superuser = shell.dsn
    installer = make_conninfo(shell.dsn, user="shop_installer")
    database = conninfo_to_dict(shell.dsn)["dbname"]
    for block in BY_NAME["docs/security.md"].blocks("sh", "sql"):
        if block.language == "sh":
            shell.psql(f'GRANT CREATE ON DATABASE "{database}" TO shop_installer')
            shell.dsn = installer
            shell.run(block)
            shell.dsn = superuser
        else:
            shell.psql(block.text)
    run("doctor", dsn=installer)
    run("tube", "create", "one", dsn=installer)


@pytest.mark.parametrize("page", ["docs/attach.md", "docs/scale.md"])
def test_pages_about_tubes(shell: Shell, page: str) -> None:
    run("install", dsn=shell.dsn)
    if page != "docs/attach.md":  # which creates the tube
        shell.psql(ATTACHED)
    run_blocks(shell, page)


def test_operate(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions do as the commands before the page's last ones, which remove everything."""
    page = BY_NAME["docs/operate.md"]
    run("install", dsn=shell.dsn)
    shell.psql(ATTACHED)
    *blocks, uninstall = page.blocks("sh", "sql")
    for block in blocks:
        _run(shell, block)
    (functions,) = page.blocks("python")
    monkeypatch.setenv("PYTUBE_DSN", shell.dsn)
    exec(functions.text, {})  # noqa: S102 - that is the test
    _run(shell, uninstall)


@pytest.mark.usefixtures("roles")
def test_install_monitor_and_deploy(shell: Shell) -> None:
    """The roles of the first page watch as the second says, and deliver with the program of the third."""
    run_blocks(shell, "docs/install.md")
    shell.psql(ATTACHED)
    page = BY_NAME["docs/monitor.md"]
    run_blocks(shell, page.name)
    monitor = make_conninfo(shell.dsn, user="pytube_monitor")
    shell.psql(page.blocks("sql")[-1].text, dsn=monitor)
    run("status", dsn=monitor)
    run("park", "list", dsn=monitor)

    (shell.folder / "pytube.toml").write_text(SETTINGS)
    shell.psql("INSERT INTO public.orders VALUES (4711, 1)")
    (program,) = BY_NAME["docs/deploy.md"].blocks("python")
    deliver(shell, program, make_conninfo(shell.dsn, user="pytube_worker"))


def deliver(shell: Shell, program: Block, user: str) -> None:
    """Run the program until the order 4711 is at the sink; Ctrl-C ends it in order."""
    (shell.folder / "program.py").write_text(program.text)
    file = shell.folder / "es-live.jsonl"
    with shell.background(sys.executable, "program.py", signal=signal.SIGINT, dsn=user) as process:

        def arrived() -> bool:
            assert process.poll() is None, process.communicate()
            return file.exists() and '"id":4711,' in file.read_text()

        wait_until(arrived, what="the order is at the sink")


# --- what is not run, but read ------------------------------------------------------------------


def all_blocks(*languages: str) -> list[Any]:
    return [pytest.param(block, id=str(block)) for page in PAGES for block in page.blocks(*languages)]


@pytest.mark.parametrize("block", all_blocks("toml"))
def test_configurations(block: Block) -> None:
    raw = tomllib.loads(block.text)
    if "project" in raw:
        return  # a pyproject.toml
    text = block.text if "postgres" in raw else '[postgres]\ndsn = ""\n' + block.text
    config = parse(text, str(block), {"PYTUBE_DSN": "dbname=shop"})
    assert config.tubes or config.outboxes


async def test_the_query_of_the_concepts(shell: Shell) -> None:
    (block,) = BY_NAME["docs/concepts.md"].blocks("toml")
    query = parse(block.text, environment={}).tubes["es-live"].enrich.query
    assert query
    shell.psql("INSERT INTO public.items VALUES (1, 7), (2, 7)")
    with psycopg.connect(shell.dsn) as session:
        rows = session.execute(query.encode(), {"ids": [7, 999], "shard": 7}).fetchall()
    assert rows == [(7, {"id": 7, "total": 7, "items": 2})]


@pytest.mark.parametrize("block", all_blocks("json"))
def test_json(block: Block) -> None:
    assert json.loads(block.text)


@pytest.mark.parametrize("block", all_blocks("ini"))
def test_units(block: Block) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(block.text)
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name in {"pytube", "pytube-pg"}
    assert set(arguments) & set(cli.commands) == {"worker"}


def test_every_block_has_a_language_that_is_looked_at() -> None:
    blocks = [block for page in PAGES for block in page.blocks()]
    assert [str(block) for block in blocks if block.language not in KNOWN_LANGUAGES] == []


def test_the_transform_of_its_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = BY_NAME["docs/transforms.md"]
    program, _ = page.blocks("python")
    (tmp_path / "shop_documents.py").write_text(program.text)
    monkeypatch.syspath_prepend(tmp_path)
    (target,) = parse('[postgres]\ndsn = ""\n' + page.blocks("toml")[0].text).tubes["es-live"].transforms
    slim = import_target(target, "transforms")
    document = {"id": 7, "title": " Ada ", "draft": False, "notes": "secret"}
    change = Change("upsert", 7, document, Token(1760, 91), 4711, 1.5, "es-live", 7, "public.orders")
    assert slim(change) == {"id": 7, "title": "Ada", "version": "472446402651"}
    assert slim(replace(change, document=document | {"draft": True})) is DELETE
    assert slim(replace(change, op="delete", document=None)) is KEEP
    fields = {name for row in table_rows(page.section("What it gets")) for name in row[0].split("`")[1::2]}
    assert fields == {"key", *(field.name for field in dataclass_fields(Change))}


def test_the_split_of_its_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = BY_NAME["docs/transforms.md"]
    _, program = page.blocks("python")
    (tmp_path / "shop_articles.py").write_text(program.text)
    monkeypatch.syspath_prepend(tmp_path)
    tube = parse('[postgres]\ndsn = ""\n' + page.blocks("toml")[1].text).tubes["articles"]
    split = import_target(tube.transforms[0], "transforms")
    assert isinstance(tube.sink.parts, list)
    row = {"id": 42, "title": "Tubes", "author": "Ada", "text": "…", "published": True}
    change = Change("upsert", 42, row, Token(1, 1), 1, 1.5, "articles", 0, "public.articles")
    found = []
    for document in (row, row | {"published": False}):
        texts = Parts(tube.sink.parts).split(json.dumps(split(replace(change, document=document))).encode())
        found.append({part_id(42, name): text for name, text in zip(tube.sink.parts, texts, strict=True)})
    assert split(replace(change, op="delete", document=None)) is KEEP
    found.append(dict.fromkeys(found[0]))
    shown = [row for row in table_rows(page.section("Split a row into several documents")) if "is " in row[0]]
    assert [
        (
            ", ".join(f"`{key}`" for key, text in one.items() if text),
            ", ".join(f"`{key}`" for key, text in one.items() if not text),
        )
        for one in found
    ] == [(row[1], row[2]) for row in shown]
