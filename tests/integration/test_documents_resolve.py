"""A configuration with declared documents: compiled where it is used, and refused if it was not applied."""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pytube.config import Config, DeclaredEnrich, load, masked
from pytube.documents.catalogue import Catalogue
from pytube.documents.compile import compile_document
from pytube.documents.model import Document
from pytube.documents.resolve import resolve, resolve_each
from pytube.errors import ConfigError, DatabaseUnavailable
from pytube.health.doctor import examine
from pytube.health.troubles import troubles
from pytube.health.watcher import Reader
from pytube.web.parked import _explained as explained_in_browser
from pytube.worker import Worker
from pytube.worker import reload as reload_module
from pytube.worker.reload import Reloader
from tests.helpers import cli, order_documents
from tests.helpers.database import Prepare
from tests.helpers.order_documents import apply
from tests.helpers.waiting import LIMIT, wait_until_async

Conn = psycopg.Connection[Any]

CONFIG = """
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
receive_deadline = 1.0
session_timeout = 3.0
[tube.orders.sink]
type = "jsonl"
path = "{folder}/copy.jsonl"
request_timeout = 2.0

[document.orders]
table = "public.orders"
fields = ["id", "total"]

[document.orders.customer]
one = "public.customers"
on = {{ customer_id = "id" }}
value = "name"

[document.orders.courier]
one = "public.couriers"
on = {{ courier_code = "code" }}
value = "name"

[document.orders.items]
many = "public.order_items"
on = {{ id = "order_id" }}
fields = ["amount"]

[document.orders.items.product]
one = "public.products"
on = {{ product_id = "id" }}
fields = ["name"]

[document.orders.items.product.categories]
many = "public.categories"
through = "public.product_categories"
list = "name"
"""


def _prepared(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as conn:
        conn.execute(order_documents.SCHEMA.encode())


def _applied(dsn: str) -> None:
    """The document of the file is applied, too."""
    _prepared(dsn)
    with (
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(dsn, autocommit=True, options="-c search_path=tube,public") as conn,
    ):
        apply(conn, compiled(conn, configured(Path(folder), dsn)))


def _applied_both(dsn: str) -> None:
    """Two documents are applied."""
    _prepared(dsn)
    with tempfile.TemporaryDirectory() as folder:
        cli.run("apply", "--yes", folder=configured(Path(folder), dsn, CONFIG + COURIERS))


@pytest.fixture
def prepare(request: pytest.FixtureRequest) -> Prepare | None:
    """What the most demanding fixture of a test begins with."""
    begins = {"both": _applied_both, "applied": _applied, "folder": _prepared}
    return next((begins[fixture] for fixture in begins if fixture in request.fixturenames), None)


def configured(folder: Path, dsn: str, text: str = CONFIG) -> Path:
    """The folder, with the file in it."""
    (folder / "pytube.toml").write_text(text.format(dsn=dsn, folder=folder))
    return folder


@pytest.fixture
def folder(dsn: str, tmp_path: Path) -> Path:
    """Where the configuration is; it was not applied."""
    return configured(tmp_path, dsn)


def compiled(conn: Conn, folder: Path) -> Document:
    """The document of the file."""
    section = load(folder / "pytube.toml").documents["orders"]
    return compile_document("orders", section, Catalogue(conn))


@pytest.fixture
def applied(folder: Path, conn: Conn) -> Document:
    """What the database follows."""
    return compiled(conn, folder)


def change_file(folder: Path) -> None:
    """Declare another field."""
    file = folder / "pytube.toml"
    file.write_text(file.read_text().replace('["id", "total"]', '["id", "total", "secret"]'))


def test_documents_become_tubes(folder: Path, applied: Document, dsn: str) -> None:
    config = resolve(load(folder / "pytube.toml"))
    enrich = config.tubes["orders"].enrich
    assert isinstance(enrich, DeclaredEnrich)
    assert (enrich.query, enrich.digest) == (applied.query, applied.digest)
    assert list(config.tubes) == ["orders", "orders_relations", "orders_relations_2"]
    companion = config.tubes["orders_relations"]
    assert (companion.sink.type, companion.sink.sends, companion.enrich.mode) == ("relations", 1, "none")
    assert len(companion.sink.options["paths"]) == 4
    assert dsn not in repr(config) + str(masked(config))
    assert resolve(config) is config, "there is nothing left to resolve"


@pytest.mark.usefixtures("applied")
def test_only_those_that_are_wanted(folder: Path) -> None:
    config = load(folder / "pytube.toml")
    assert resolve(config, ["others"]) is config
    assert "orders_relations" in resolve(config, ["orders"]).tubes


def test_without_documents_no_session_is_opened() -> None:
    config = Config.model_validate({"postgres": {"dsn": "host=127.0.0.1 port=1"}})
    assert resolve(config) is config


def test_a_database_that_is_down(folder: Path) -> None:
    file = folder / "pytube.toml"
    file.write_text(CONFIG.format(dsn="host=127.0.0.1 port=1", folder=folder))
    with pytest.raises(DatabaseUnavailable):
        resolve(load(file))


def test_what_was_not_applied_is_refused(folder: Path, conn: Conn) -> None:
    said = (
        "document orders differs from the declaration applied last (none was); run `pytube apply`, "
        "or, if that is done, send this worker SIGHUP, so that it loads the file"
    )
    with pytest.raises(ConfigError) as caught:
        resolve(load(folder / "pytube.toml"))
    assert str(caught.value) == said
    for command in (
        ["worker"],
        ["verify", "--tube", "orders"],
        ["explain", "--tube", "orders", "--key", "1"],
    ):
        assert said in cli.run(*command, folder=folder, code=2).output, command
    apply(conn, compiled(conn, folder))
    change_file(folder)
    with pytest.raises(
        ConfigError, match=r"differs from the declaration applied last \(the database has \w{12}, the file"
    ):
        resolve(load(folder / "pytube.toml"))


@pytest.mark.usefixtures("applied")
def test_a_worker_asks_for_what_is_resolved(folder: Path) -> None:
    config = load(folder / "pytube.toml")
    with pytest.raises(ConfigError, match=r"call pytube\.documents\.resolve\.resolve\(config\)"):
        Worker(config)
    with pytest.raises(ConfigError, match="document 'orders' is declared but not compiled"):
        Worker(config, ["orders"])


@pytest.fixture
def worker(folder: Path, conn: Conn) -> Iterator[None]:
    """`pytube worker` that has delivered all orders."""
    conn.execute("SELECT public.orders_touch(array_agg(id)) FROM public.orders")
    process = cli.start("worker", "--tube", "orders", config=folder / "pytube.toml")
    try:
        cli.run("wait", "--tube", "orders", folder=folder)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, out + err


COURIERS = """
[tube.couriers.sink]
type = "jsonl"
path = "{folder}/couriers.jsonl"
request_timeout = 2.0
[document.couriers]
table = "public.couriers"
fields = ["*"]
"""
BROKEN = {
    "it takes a new column in": (
        "ALTER TABLE public.couriers ADD COLUMN phone text",
        "document couriers differs from the declaration applied last",
    ),
    "it can't be made": (
        "ALTER TABLE public.order_items RENAME COLUMN amount TO quantity",
        "document.orders.items",
    ),
}


@pytest.fixture
def both(folder: Path) -> Path:
    """Two documents were applied, and nobody has served them."""
    with (folder / "pytube.toml").open("a") as file:
        file.write(COURIERS.format(folder=folder))
    return folder


@pytest.mark.parametrize("why", BROKEN)
def test_a_document_that_stops_stops_nothing_else(both: Path, conn: Conn, why: str) -> None:
    statement, reason = BROKEN[why]
    conn.execute("SELECT public.couriers_touch(array_agg(code)) FROM public.couriers")
    conn.execute("SELECT public.orders_touch(array_agg(id)) FROM public.orders")
    conn.execute(statement.encode())
    stopped, goes_on, key = (
        ("couriers", "orders", "1") if "couriers" in statement else ("orders", "couriers", "van")
    )
    process = cli.start("worker", config=both / "pytube.toml")
    try:
        cli.run("wait", "--tube", goes_on, folder=both)
        cli.run("verify", "--tube", goes_on, folder=both)
        cli.run("explain", "--tube", goes_on, "--key", key, folder=both)
        leaders = {row["tube"]: row["leader"] for row in cli.run_json("status", folder=both)}
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    (told,) = [line for line in map(json.loads, err.splitlines()) if line["event"] == "document_refused"]
    assert (told["level"], told["tube"]) == ("error", stopped)
    assert told["reason"].startswith(reason)
    assert leaders[goes_on] is not None
    assert leaders[stopped] is None
    assert (leaders["orders_relations"] is None) == (stopped == "orders")


HIDDEN = """
[tube.parcels.sink]
type = "jsonl"
path = "{folder}/parcels.jsonl"
request_timeout = 2.0
[document.parcels]
table = "depot.parcels"
fields = ["id", "name"]
[document.parcels.place]
one = "depot.places"
on = {{ place = "id" }}
value = "name"
"""


@pytest.fixture
def hidden(both: Path, conn: Conn) -> Iterator[Path]:
    """The worker's role may read all documents but one, which waits in its tube."""
    conn.execute("CREATE SCHEMA depot; CREATE TABLE depot.places (id bigint PRIMARY KEY, name text)")
    conn.execute("CREATE TABLE depot.parcels (id bigint PRIMARY KEY, name text, place bigint)")
    with (both / "pytube.toml").open("a") as file:
        file.write(HIDDEN.format(folder=both))
    cli.run("apply", "--yes", folder=both)
    conn.execute("INSERT INTO depot.parcels VALUES (1, 'a box', 1)")
    conn.execute("CREATE ROLE a_porter LOGIN IN ROLE tube_worker")
    conn.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO a_porter")
    yield both
    conn.execute("DROP OWNED BY a_porter; DROP ROLE a_porter")


@pytest.fixture
def theirs(hidden: Path, dsn: str) -> Path:
    """The file as a worker of that role has it."""
    path = hidden / "worker" / "pytube.toml"
    path.parent.mkdir()
    path.write_text((hidden / "pytube.toml").read_text().replace(dsn, make_conninfo(dsn, user="a_porter")))
    return path


@pytest.mark.parametrize("missing", ["places", "parcels"])
def test_a_document_of_which_the_role_may_not_read_a_table_is_refused_alone(
    theirs: Path, conn: Conn, missing: str
) -> None:
    conn.execute(
        "GRANT USAGE ON SCHEMA depot TO a_porter; GRANT SELECT ON ALL TABLES IN SCHEMA depot TO a_porter"
    )
    conn.execute(f"REVOKE SELECT ON depot.{missing} FROM a_porter".encode())
    config = load(theirs)
    resolved, refused = resolve_each(config)
    why = f"document parcels: permission denied for table {missing}; as the owner, run: GRANT SELECT ON "
    assert str(refused.pop("parcels")) == f"{why}depot.{missing} TO a_porter"
    assert not refused
    assert {"orders", "couriers"} <= resolved.tubes.keys()
    assert "parcels" not in resolved.tubes
    assert "parcels" in resolve(config).tubes, "a command that reads no row may go on"


async def test_a_document_that_the_role_may_not_read_is_told_and_served_once_it_may(
    hidden: Path, theirs: Path, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload_module, "_AGAIN", 0.5)
    config = load(theirs)
    resolved, refused = resolve_each(config)
    assert list(refused) == ["parcels"]
    worker = Worker(resolved, refused=refused, takes_up=False)
    again = lambda: resolve_each(config)  # noqa: E731
    worker._reloader = Reloader(worker, again, lambda _: None, None, {}, again)

    def said() -> list[str]:
        found = [str(one) for one in troubles([Reader("tube").read(conn)])]
        return [line for line in found if line.startswith("parcels")]

    await worker.start()
    try:
        why = "can't serve it: document.parcels.place.on: permission denied for schema depot; grant a_porter"
        await wait_until_async(lambda: any(why in line for line in said()), what="status says why")
        assert "parcels_relations: no" not in "".join(said()), "it says it once"
        checks = await asyncio.to_thread(lambda: list(examine(load(hidden / "pytube.toml"))))
        assert any(why in check.finding for check in checks), "so does the doctor"
        conn.execute("GRANT USAGE ON SCHEMA depot TO a_porter")
        conn.execute("GRANT SELECT ON depot.places TO a_porter")
        await wait_until_async(lambda: any("SELECT" in line for line in said()), what="it says what is left")
        conn.execute("GRANT SELECT ON depot.parcels TO a_porter")
        copy = hidden / "parcels.jsonl"
        await wait_until_async(lambda: copy.exists() and "a box" in copy.read_text(), what="it is served")
        await wait_until_async(lambda: not any("can't serve" in line for line in said()), what="all is well")
    finally:
        await worker.stop()


def test_a_worker_that_has_nothing_left_to_serve_ends(both: Path, conn: Conn) -> None:
    conn.execute("ALTER TABLE public.couriers ADD COLUMN phone text")
    said = "document couriers differs from the declaration applied last"
    assert said in cli.run("worker", "--tube", "couriers", folder=both, code=2).output
    cli.run("apply", "--yes", folder=both)
    conn.execute("SELECT public.couriers_touch(array_agg(code)) FROM public.couriers")
    process = cli.start("worker", "--tube", "couriers", config=both / "pytube.toml")
    try:
        cli.run("wait", "--tube", "couriers", folder=both)
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    assert "phone" in (both / "couriers.jsonl").read_text()


@pytest.mark.usefixtures("applied", "worker")
def test_commands_know_the_document(folder: Path, conn: Conn) -> None:
    conn.execute("UPDATE public.products SET name = 'new' WHERE id = 2")
    conn.execute("UPDATE public.couriers SET name = 'new'")
    cli.run("wait", "--tube", "orders", folder=folder)
    assert "6 keys" in cli.run("verify", "--tube", "orders", folder=folder).output
    said = cli.run_json("explain", "--tube", "orders", "--key", "1", folder=folder)
    assert said["source"]["document"]["courier"] == "new"
    assert said["source"]["document"] == said["sink"]["document"]
    in_browser = explained_in_browser(load(folder / "pytube.toml"), "orders", 1, "1")
    assert in_browser.source.document == said["source"]["document"]
    found = {one["subject"]: one for one in cli.run_json("doctor", folder=folder)}
    assert "documents" not in found, "nothing is wrong with them"
    assert {found[f"sink of {tube}"]["level"] for tube in ("orders", "orders_relations")} == {"ok"}
    assert found["enriching of orders"]["level"] == "ok"
    assert "orders_relations_2" in cli.run("status", folder=folder).output


@pytest.mark.usefixtures("applied")
def test_the_doctor_says_that_a_file_was_not_applied(folder: Path) -> None:
    change_file(folder)
    found = {one["subject"]: one for one in cli.run_json("doctor", folder=folder, code=1)}
    assert found["document orders"]["level"] == "fail"
    assert "`pytube apply --backfill`" in found["document orders"]["remedy"]
    assert "documents" not in found, "it is said once"
    assert found["worker"]["finding"] == "was not tried, as documents can't be compiled"
    assert "enriching of orders" not in found
    assert found["tube orders"]["level"] == "ok"


@pytest.mark.usefixtures("applied")
def test_a_worker_killed_between_touch_and_purge_loses_nothing(folder: Path, conn: Conn) -> None:
    conn.execute("SELECT public.orders_touch(array_agg(id)) FROM public.orders")
    config = folder / "pytube.toml"
    first = cli.start("worker", config=config)
    cli.run("wait", "--tube", "orders", folder=folder)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=LIMIT)
    # The first send is that of the relations.
    conn.execute("SELECT tube_pause('orders'); SELECT tube_resume(c) FROM tube_companions('orders') AS c")
    conn.execute("UPDATE public.products SET name = 'new' WHERE id = 2")
    killed = cli.start("worker", config=config, PYTUBE_FAULT="after_send:kill")
    killed.communicate(timeout=LIMIT)
    assert killed.returncode == -signal.SIGKILL
    assert conn.execute("SELECT sum(cardinality(ids)) > 0 FROM orders").fetchone() == (True,)
    assert conn.execute("SELECT count(*) FROM orders_relations").fetchone() == (1,)
    conn.execute("SELECT tube_resume('orders')")
    last = cli.start("worker", config=config)
    try:
        cli.run("wait", "--tube", "orders", folder=folder)
        cli.run("verify", "--tube", "orders", folder=folder)
        assert conn.execute("SELECT count(*) FROM orders_relations").fetchone() == (0,)
    finally:
        last.send_signal(signal.SIGTERM)
        last.communicate(timeout=LIMIT)
