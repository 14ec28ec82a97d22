"""`pytube web` in a real Chromium: narrow and wide, light and dark, by keyboard, and by forms."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytube.cli.worker import listening, server
from tests.helpers.chromium import Chromium
from tests.helpers.waiting import wait_until
from tests.integration.test_web import PAGES, TOKEN, Web, prepare, web, write

__all__ = ["prepare", "web"]

WIDTHS = (400, 1400)
# Of all elements with text of their own, those whose contrast is below 4.5, as WCAG computes it.
PALE = """
(() => {
  const light = c => { const v = c / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const parse = t => (t.match(/[\\d.]+/g) || []).map(Number);
  const lum = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('body *')].filter(e =>
    [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())).filter(e => {
      const style = getComputedStyle(e);
      const own = parse(e.namespaceURI.includes('svg') ? style.fill : style.color);
      const one = lum(own), other = lum(ground(e));
      return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05) < 4.5;
    }).map(e => e.outerHTML.slice(0, 100));
})()
"""
# What can be operated, and has no name that is read out.
NAMELESS = """
[...document.querySelectorAll('a, button, input:not([type=hidden])')].filter(e =>
  !(e.textContent.trim() || (e.labels && e.labels.length) || e.ariaLabel)).map(e => e.outerHTML)
"""
WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    browser = Chromium(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def address(web: Web) -> Iterator[str]:
    """The pages of a fleet with troubles, behind a token."""
    write(web.config, {"id": 42, "n": 2, "old": [True], "text": "x" * 300})
    web.conn.execute(
        "SELECT tube_ensure_exists(%s, 4)", ("a-tube-with-a-name-as-long-as-one-may-be-4567890",)
    )
    web.conn.execute(
        "SELECT tube_pause('t', NULL, NULL, 'Kafka is upgraded; ask Ada before you resume this')"
    )
    for _ in range(20):
        web.sampler.take()
    with listening("127.0.0.1", 0) as listener:
        uvicorn_server = server(web.browser(TOKEN, web.config).app)
        thread = threading.Thread(target=uvicorn_server.run, args=[[listener]])
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        uvicorn_server.should_exit = True
        thread.join()


def log_in(chromium: Chromium, address: str) -> None:
    chromium.open(f"{address}/login?next=/tube%3Fname%3Dt")
    chromium.evaluate(f"document.querySelector('input').value = '{TOKEN}'; document.forms[0].submit()")
    wait_until(lambda: chromium.evaluate("document.title") == "Tube t · pytube", what="the login")


def test_pages_fit_and_can_be_read(chromium: Chromium, address: str) -> None:
    """PYTUBE_TEST_PICTURES names a folder for pictures of all of them."""
    chromium.look(400)
    log_in(chromium, address)
    pictures = os.environ.get("PYTUBE_TEST_PICTURES")
    for target in [*PAGES, "/ask?action=pause&tube=t", "/login"]:
        chromium.open(f"{address}{target}")
        assert chromium.evaluate(NAMELESS) == [], target
        for width, dark in itertools.product(WIDTHS, (False, True)):
            chromium.look(width, dark=dark)
            assert not chromium.evaluate(WIDE), (target, width)
            assert chromium.evaluate(PALE) == [], (target, width, dark)
            if pictures is not None:
                name = target.strip("/").partition("?")[0] or "overview"
                chromium.picture(Path(pictures) / f"{name}-{width}{'-dark' if dark else ''}.png")


def test_a_form_is_sent_by_a_real_browser(web: Web, chromium: Chromium, address: str) -> None:
    """With the headers that it sends by itself: these decide whether a form is taken."""
    chromium.look(1400)
    log_in(chromium, address)
    chromium.open(f"{address}/ask?action=resume&tube=t")
    chromium.evaluate("document.querySelector('form[action=\"/act\"] button').click()")
    said = "document.querySelector('[role=status]')?.textContent"
    wait_until(lambda: chromium.evaluate(said) == "Resumed: t.", what="the action")
    assert web.actions()[0][0] == "resume"
