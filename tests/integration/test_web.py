"""`pytube web`: what its pages show, what they never show, and who may act from them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from pytube import admin, clock
from pytube.config import Config, parse
from pytube.db.database import Database
from pytube.health.watcher import FleetWatcher
from pytube.logs import Logger
from pytube.sinks import build_sink
from pytube.testing import batch
from pytube.web.app import application
from pytube.web.site import Place, Sampler, Sessions, Site
from tests.helpers.asgi import Browser
from tests.helpers.capture import open_session
from tests.helpers.database import preparing
from tests.helpers.terms import Claim, Conn, acquire, park, park_item, scalar
from tests.helpers.waiting import wait_until

TOKEN = "0123456789abcdef-token"
EVIL = "<script>alert(1)</script>"
CONFIG = """
[postgres]
dsn = "{dsn}"
[worker]
election = "lease"
[tube.t.sink]
type = "postgres"
dsn = "{secret}"
table = "copy"
create = true
"""


@dataclass
class Web:
    """A server of pages over a tube `t` of two partitions, whose key 42 of shard 1 is parked."""

    conn: Conn
    config: Config
    watcher: FleetWatcher
    sampler: Sampler

    def browser(self, token: str | None = None, config: Config | None = None, **options: Any) -> Browser:
        postgres = self.config.postgres
        place = Place(Database(postgres.only_dsn, postgres.schema_name), config)
        site = Site({None: place}, self.sampler, None if token is None else Sessions(token))
        return Browser(application(site, ["127.0.0.1"], Logger("pytube.web")), **options)

    def acting(self) -> Browser:
        """One that has given the token."""
        browser = self.browser(TOKEN)
        assert browser.post("/login", {"token": TOKEN}).status == 303
        return browser

    def parked(self) -> int:
        return admin.see_parked(self.conn, admin.Parking("t")).count

    def actions(self) -> list[tuple[str, str, str | None]]:
        return [(row.action, row.done_by, row.client) for row in admin.audit(self.conn, tube="t")]


def _goods(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute("SELECT tube_ensure_exists('t', 2)")
        conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, n int, name text)")
        conn.execute("SELECT tube_table_ensure_attached('t', 'public.goods', 1)")
        conn.execute("INSERT INTO public.goods VALUES (42, 1, %s)", (EVIL,))


prepare = preparing(_goods, "web")


@pytest.fixture
def web(conn: Conn, dsn: str) -> Iterator[Web]:
    park(conn, acquire(conn, Claim(tube="t", partitions=2, partition=1)), park_item(42, shard=1))
    conn.execute("UPDATE tube_parked SET error = %s", (f"no such field {EVIL} \u202e",))
    config = parse(CONFIG.format(dsn=dsn, secret=make_conninfo(dsn, password="hunter2")), environment={})
    watcher = FleetWatcher([Database(SecretStr(dsn))])
    yield Web(conn, config, watcher, Sampler(watcher, 5, 6, Logger("pytube.web")))
    watcher.close()


PAGES = ["/", "/tube?name=t", "/partition?tube=t&partition=1", "/parked?tube=t&shard=1&key=42"]
ASKING = [f"/ask?action={action}&tube=t" for action in ("pause", "resume", "retry", "drop")]


# --- what pages show ---


def test_pages_show_what_the_database_knows(web: Web) -> None:
    browser = web.browser(config=web.config)
    fleet = browser.get("/")
    assert fleet.status == 200
    for said in ("1 leads", "1 free", "no worker leads it, though", "Samples: 1", "read-only"):
        assert said in fleet.said, said
    tube = browser.get("/tube?name=t").said
    assert "Parked documents: 1" in tube
    assert "no such field" in tube
    leader = scalar(web.conn, "SELECT client_id FROM tube_leaders()")
    assert f"leader {leader} epoch" in browser.get("/partition?tube=t&partition=1").said


def test_a_sink_that_was_emptied_is_told_of(web: Web) -> None:
    for held in ("uuid", None):
        web.conn.execute("SELECT tube_sink_note('t', %s)", [held])
    web.sampler.take()
    for page in ("/", "/tube?name=t", "/partition?tube=t&partition=1"):
        said = web.browser(config=web.config).get(page).said
        assert "t: the sink has lost its documents, or was replaced; found" in said
        assert "pytube backfill start t fills it again" in said
        assert "Nothing is wrong" not in said


def test_a_copy_that_is_to_be_verified_is_a_trouble(web: Web) -> None:
    web.conn.execute("SELECT tube_source_check()")
    web.conn.execute("UPDATE tube_source SET timeline = 7")

    def is_told(page: str) -> bool:
        web.sampler.take()
        said = web.browser(config=web.config).get(page).said
        return (
            "t: the source was replaced or restored (timeline 1, before 7" in said
            and "verify now: pytube verify t" in said
        )

    for page in ("/", "/tube?name=t"):
        wait_until(lambda page=page: is_told(page), what=f"{page} tells")  # type: ignore[misc] # its default


def test_links_lead_to_pages(web: Web) -> None:
    """From the overview, every page is reached by links, and none of them leads elsewhere."""
    browser, seen, todo = web.browser(config=web.config), set[str](), ["/"]
    while todo:
        target = todo.pop()
        if target not in seen and not target.startswith("#"):
            assert target.startswith("/"), target
            seen.add(target)
            answer = browser.get(target)
            assert answer.status == 200, (target, answer.said)
            if target != "/style.css":
                todo += answer.links()
    assert {link.partition("?")[0] for link in seen} == {"/", "/style.css", "/tube", "/partition", "/parked"}


def write(config: Config, body: Any) -> None:
    async def send() -> None:
        settings = config.tube("t").sink
        sink = build_sink(settings.type, settings.options)
        await sink.open()
        await sink.send(batch({(1, 42): body}, token=(1, 1), seq=5, tube="t"))
        await sink.close()

    asyncio.run(send())


def test_a_parked_document_stands_beside_the_one_of_the_sink(web: Web) -> None:
    write(web.config, {"id": 42, "n": 2, "old": [True]})
    answer = web.browser(config=web.config).get("/parked?tube=t&shard=1&key=42")
    assert "3 of 4 values differ." in answer.said
    assert "only in the source" in answer.said
    assert "only at the sink" in answer.said
    assert answer.text.count('class="differs"') == 3


def test_without_a_configuration_documents_are_not_compared_and_that_is_said(web: Web) -> None:
    said = web.browser().get("/parked?tube=t&shard=1&key=42").said
    assert "The documents were not compared: start pytube web with the configuration" in said


def test_a_sink_that_can_not_be_read_makes_nothing_differ(web: Web) -> None:
    dsn = web.config.postgres.only_dsn.get_secret_value()
    sink = "[tube.t.sink]\ntype = 'callable'\ntarget = 'tests.integration.test_operators:send'"
    config = parse(f"[postgres]\ndsn = '{dsn}'\n[worker]\nelection = 'lease'\n{sink}", environment={})
    answer = web.browser(config=config).get("/parked?tube=t&shard=1&key=42")
    assert "Nothing was compared" in answer.said
    assert 'class="differs"' not in answer.text


def test_everything_is_escaped(web: Web) -> None:
    web.conn.execute("SELECT tube_ensure_exists(%s)", (EVIL[:40],))
    web.sampler.take()
    browser = web.browser(config=web.config)
    write(web.config, {"id": 42, "name": EVIL, "n": EVIL})
    for target in [*PAGES, f"/tube?name={EVIL}", f"/parked?tube=t&shard=1&key={EVIL}", f"/{EVIL}"]:
        answer = browser.get(target)
        assert "<script" not in answer.text, target
        assert "\u202e" not in answer.text
    assert EVIL in browser.get(PAGES[-1]).said


def test_a_database_that_is_away_is_told_and_comes_back(web: Web) -> None:
    browser = web.browser()
    web.conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pytube fleet'"
    )
    web.sampler.take()
    assert "The database was not read:" in browser.get("/").said
    assert browser.get("/tube?name=t").status == 503
    web.sampler.take()
    assert "was not read" not in browser.get("/").said


def only_looks(web: Web) -> None:
    """From now on, sessions are those of a role that may only look."""
    web.conn.execute(f"ALTER DATABASE {web.conn.info.dbname} SET role = 'tube_monitor'")


def test_what_this_role_may_not_see_is_told(web: Web) -> None:
    web.conn.execute("REVOKE SELECT ON tube_parked FROM tube_monitor")
    only_looks(web)
    watcher = FleetWatcher([Database(web.config.postgres.only_dsn)])
    web.sampler = Sampler(watcher, 5, 6, Logger("pytube.web"))
    watcher.close()
    said = web.browser().get("/").said
    assert "Not looked at: 1 parked keys could not be seen by this role (tube_monitor may)" in said
    assert "parked ?" in said


BAD_ADDRESSES = [
    ("/tube", 400, "'name' is missing"),
    ("/tube?name=none", 404, "no tube or outbox 'none'"),
    ("/tube?name=t&host=none", 400, "no host 'none'"),
    ("/partition?tube=t&partition=2", 404, "no partition 2"),
    ("/partition?tube=t&partition=-1", 400, "expected a number"),
    ("/partition?tube=t&partition=4294967296", 400, "expected a number"),
    ("/parked?tube=t&key=1", 400, "'shard' is missing"),
    ("/parked?tube=none&shard=1&key=1", 404, "no tube 'none'"),
    ("/parked?tube=t&shard=1&key=%00", 500, "NUL"),
    ("/none", 404, "There is no such page: /none"),
    ("/act", 405, "Method Not Allowed"),
]


def test_bad_addresses(web: Web) -> None:
    browser = web.browser(config=web.config)
    for target, status, says in BAD_ADDRESSES:
        answer = browser.get(target)
        assert (answer.status, says in answer.said) == (status, True), (target, answer.said)


# --- who may look, and act ---


def test_without_a_token_all_is_read_only(web: Web) -> None:
    browser = web.browser()
    for target in ASKING:
        assert browser.get(target).status == 403
        assert "start it with --token-file" in browser.get(target).said
    assert browser.post("/act", {"action": "drop", "tube": "t", "csrf": ""}).status == 403
    assert "Pause" not in browser.get("/tube?name=t").said
    assert (web.parked(), web.actions()) == (1, [])


def test_with_a_token_nothing_is_shown_without_it(web: Web) -> None:
    browser = web.browser(TOKEN)
    for target in [*PAGES, *ASKING, "/none"]:
        answer = browser.get(target)
        assert (answer.status, (answer.header("location") or "")[:6]) == (303, "/login")
    assert browser.post("/act", {"action": "drop", "tube": "t"}).status == 303
    assert browser.post("/login", {"token": TOKEN[:-1]}).status == 403
    assert browser.cookies == {}
    assert browser.get("/").status == 303
    back = browser.get("/tube?name=t").header("location")
    assert back is not None
    assert browser.post(back, {"token": TOKEN}).header("location") == "/tube?name=t"
    assert browser.get("/").status == 200


def test_the_login_leads_to_no_other_site(web: Web) -> None:
    for target in ("https://evil.example/", "//evil.example", "/\\evil.example", "/\t/evil"):
        answer = web.browser(TOKEN).post(f"/login?next={quote(target)}", {"token": TOKEN})
        assert (answer.status, answer.header("location")) == (303, "/"), target


def test_a_session_ends_by_logging_out_and_by_time(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = web.acting()
    kept = dict(browser.cookies)
    browser.post("/logout", browser.get("/").fields("/logout"))
    browser.cookies = kept
    assert browser.get("/").status == 303
    browser = web.acting()
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 13 * 3600)
    assert browser.get("/").status == 303


def test_actions_are_asked_for_done_and_audited(web: Web) -> None:
    browser = web.acting()
    asked = browser.get("/ask?action=pause&tube=t&partition=1")
    assert asked.status == 200
    assert web.actions() == []
    done = browser.post("/act", asked.fields("/act") | {"lasts": "10m", "reason": "a test"})
    assert (done.status, done.header("location")) == (303, "/partition?tube=t&partition=1")
    assert [one.partition for one in admin.pauses(web.conn, "t")] == [1]
    page = browser.get("/partition?tube=t&partition=1").said
    assert "Paused: partition 1 of t, for 0:10:00." in page

    def is_shown() -> bool:
        web.sampler.take()  # on a busy machine the partitions are not read with each sample
        return "a test" in browser.get("/partition?tube=t&partition=1").said

    wait_until(is_shown, what="the page shows the pause and its reason")
    assert "Paused:" not in browser.get("/").said  # said once
    browser.post("/act", browser.get("/ask?action=resume&tube=t").fields("/act"))
    assert admin.pauses(web.conn, "t") == []
    asked = browser.get("/ask?action=retry&tube=t&shard=1&key=42")
    assert "Documents: 1." in asked.said
    browser.post("/act", asked.fields("/act"))
    assert "Touched: 1 parked document of t." in browser.get("/").said
    browser.post("/act", browser.get("/ask?action=drop&tube=t").fields("/act"))
    assert web.parked() == 0
    assert "Nothing of that is parked." in browser.get("/ask?action=drop&tube=t").said
    audited = web.actions()
    assert [action for action, *_ in audited] == ["park discard", "park retry", "resume", "pause"]
    assert {client for *_, client in audited} == {"pytube web"}


@pytest.mark.parametrize(("act", "said"), [("drop", "Dropped: 0"), ("retry", "Touched: 0")])
def test_what_was_parked_since_the_page_asked_is_left_alone(web: Web, act: str, said: str) -> None:
    browser = web.acting()
    form = browser.get(f"/ask?action={act}&tube=t").fields("/act")
    web.conn.execute("UPDATE tube_parked SET error = 'another', parked_at = clock_timestamp()")
    browser.post("/act", form)
    assert said in browser.get("/").said
    assert web.parked() == 1
    assert web.conn.execute("SELECT retried_at FROM tube_parked").fetchone() == (None,)


def test_forms_of_others_do_nothing(web: Web) -> None:
    browser = web.acting()
    form = browser.get("/ask?action=drop&tube=t").fields("/act")
    other = web.acting().get("/ask?action=drop&tube=t").fields("/act")["csrf"]
    assert browser.post("/act", form | {"csrf": other}).status == 403
    assert browser.post("/act", {name: value for name, value in form.items() if name != "csrf"}).status == 403
    for headers in (
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "null"},
        {"origin": "", "sec-fetch-site": "same-site"},
        {"origin": "", "sec-fetch-site": "cross-site"},
    ):
        assert browser.post("/act", form, headers).status == 403, headers
        assert browser.post("/login", {"token": TOKEN}, headers).status == 403, headers
    browser.cookies.clear()
    assert browser.post("/act", form).header("location") == "/login"
    assert (web.parked(), web.actions()) == (1, [])


BAD_FORMS: list[tuple[Any, str]] = [
    ({"action": "explode", "tube": "t"}, "not a valid action"),
    ({"action": "pause"}, "'tube' is missing"),
    ({"action": "pause", "tube": "t", "lasts": "soon"}, "not a valid duration"),
    ({"action": "pause", "tube": "t", "partition": "9"}, "partition"),
    ({"action": "drop", "tube": "t", "key": "42"}, "belong together"),
    ({"action": "drop", "tube": "none"}, "none"),
    ({"action": "drop", "tube": "t", "snapshot": "now"}, "the snapshot is missing"),
    (b"\xff", "the form can't be read"),
    (b"a" * 40_000, "longer than"),
]


def test_bad_forms_do_nothing(web: Web) -> None:
    browser = web.acting()
    csrf = {"csrf": browser.get("/").fields("/logout")["csrf"]}
    for form, says in BAD_FORMS:
        answer = browser.post("/act", form | csrf if isinstance(form, dict) else form)
        assert (answer.status in (400, 404), says in answer.said) == (True, True), (form, answer.said)
    assert (web.parked(), web.actions()) == (1, [])


def test_a_role_that_may_only_look_is_told_so(web: Web) -> None:
    browser = web.acting()
    form = browser.get("/ask?action=pause&tube=t").fields("/act")
    only_looks(web)
    answer = browser.post("/act", form)
    assert "may not do that" in answer.said
    assert admin.pauses(web.conn, "t") == []


# --- what a browser is told ---


def test_other_names_are_refused(web: Web) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[", "127.0.0.1@evil.example"):
        answer = web.browser(host=host).get("/")
        assert (answer.status, "not a name of this server" in answer.said) == (421, True), host


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1/login?", "127.0.0.1/login", "127.0.0.1#", "x@127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x"],
)
def test_a_host_header_is_a_name_and_a_port_and_nothing_else(web: Web, host: str) -> None:
    """Older versions of Starlette read the path out of it: that of the login is open to everybody."""
    answer = web.browser(TOKEN, host=host).get("/parked?tube=t&shard=1&key=42")
    assert (answer.status, "not a name of this server" in answer.said) == (421, True)


def test_every_answer_forbids_scripts_frames_and_caches(web: Web) -> None:
    browser = web.browser(TOKEN)
    answers = [browser.get(target) for target in (*PAGES, "/login", "/none", "/style.css")]
    answers += [web.browser(host="evil").get("/"), browser.post("/login", {"token": "x"})]
    answers += [web.acting().get(target) for target in PAGES]
    for answer in answers:
        policy = answer.header("content-security-policy")
        assert policy is not None
        assert policy.startswith("default-src 'none'; style-src 'self'; form-action 'self'")
        assert answer.header("cache-control") is not None
        assert not re.search(r"<script|style=|\son\w+=|https?://", answer.text)


def test_no_page_has_a_secret(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    browser = web.acting()
    session = next(iter(browser.cookies.values()))
    with caplog.at_level(logging.DEBUG):
        texts = [web.browser(config=web.config).get(target).text for target in PAGES]
        texts += [browser.get(target).text for target in (*PAGES, *ASKING, "/login", "/none")]
        texts.append(browser.post("/login", {"token": "wrong-" + TOKEN}).text)
    for text in [*texts, caplog.text]:
        assert TOKEN not in text
        assert "hunter2" not in text
        assert session not in text


def test_the_cookie_is_for_requests_alone(web: Web) -> None:
    browser = web.browser(TOKEN)
    cookie = browser.post("/login", {"token": TOKEN}).header("set-cookie")
    assert cookie is not None
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    tls = browser.post("/login", {"token": TOKEN}, {"origin": f"https://{browser.host}"})
    assert "Secure" in (tls.header("set-cookie") or "")


def test_it_says_that_nothing_is_wrong_only_while_nothing_is(web: Web) -> None:
    """One partition is led by a term that renews nothing more, the other one by nobody."""
    web.conn.execute("DELETE FROM tube.t")
    for partition in range(2):
        acquire(web.conn, Claim(tube="t", partitions=2, partition=partition, hold="1 hour"))

    def said() -> str:
        web.sampler.take()
        return web.browser().get("/tube?name=t").said

    wait_until(lambda: "no worker leads" not in said(), what="both are led")
    assert "pytube park list t shows why" in said()
    assert "Nothing is wrong" not in said()
    web.conn.execute("DELETE FROM tube_parked")
    wait_until(lambda: "Nothing is wrong, as far as was looked" in said(), what="nothing is parked")
