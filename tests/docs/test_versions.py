"""The site of several versions: a folder for each minor release, and a selector between them."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.docs.versions import build, versions
from tests.helpers.chromium import Chromium
from tests.helpers.waiting import wait_until

_CONFIG = """[project]
site_name = "pytube"
site_dir = ".site"
nav = [{ "Home" = "index.md" }, { "Scale" = "scale.md" }]

[project.theme]
font = false
"""


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([], [("dev", None, True)]),
        (["v0.1.0"], [("0.1", "v0.1.0", True), ("dev", None, False)]),
        (
            ["v0.9.0", "v0.10.0", "v0.9.2", "v0.9.10", "v1.0.0rc1", "vacuum", "x0.1.0"],
            [("0.10", "v0.10.0", True), ("0.9", "v0.9.10", False), ("dev", None, False)],
        ),
    ],
)
def test_the_newest_patch_of_each_minor_version_counts(
    tags: list[str], expected: list[tuple[str, str | None, bool]]
) -> None:
    assert [(one.name, one.tag, one.is_latest) for one in versions(tags)] == expected


@pytest.fixture(scope="module")
def site(folder: Path, address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a repository with three releases, and with a change that is not committed."""
    repository = tmp_path_factory.mktemp("repository")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    (repository / "docs").mkdir()
    (repository / "zensical.toml").write_text(_CONFIG)
    (repository / "docs/scale.md").write_text("# Scale\n")
    for tag in ("v0.1.0", "v0.1.1", "v0.2.0"):
        (repository / "docs/index.md").write_text(f"# Home\n\nThis is {tag}.\n")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", tag], check=True)
        subprocess.run([*git, "tag", tag], check=True)
    (repository / "docs/index.md").write_text("# Home\n\nThis is to come.\n")
    (folder / "0.0").mkdir(parents=True)
    build(repository, folder, address)
    return folder


def test_each_version_has_its_pages(site: Path) -> None:
    assert sorted(one.name for one in site.iterdir()) == ["0.1", "0.2", "dev", "index.html", "versions.json"]
    for name, text in {"0.1": "This is v0.1.1.", "0.2": "This is v0.2.0.", "dev": "This is to come."}.items():
        assert text in (site / name / "index.html").read_text()
        assert (site / name / "scale/index.html").exists()
    assert [(one["version"], one["title"], one["aliases"]) for one in _listed(site)] == [
        ("0.2", "0.2.0", ["latest"]),
        ("0.1", "0.1.1", []),
        ("dev", "not released", []),
    ]
    assert "url=0.2/" in (site / "index.html").read_text()


@pytest.mark.usefixtures("site")
def test_a_browser_stays_on_the_page_in_another_version(address: str, browser: Chromium) -> None:
    browser.look(1200)
    browser.open(f"{address}/0.1/scale/")
    wait_until(lambda: browser.evaluate("document.querySelectorAll('.md-version__link').length") == 3)
    assert browser.evaluate("document.querySelector('.md-version__current').innerText").startswith("0.1.1")
    # An old page says so.
    assert browser.evaluate("document.querySelector('[data-md-component=outdated]').offsetHeight") > 0
    browser.evaluate(
        "[...document.querySelectorAll('.md-version__link')].find(a => a.innerText == '0.2.0').click()"
    )
    wait_until(lambda: browser.evaluate("location.pathname") == "/0.2/scale/")
    wait_until(lambda: browser.evaluate("document.querySelectorAll('.md-version__link').length") == 3)
    assert browser.evaluate("document.querySelector('[data-md-component=outdated]').offsetHeight") == 0


@pytest.mark.usefixtures("site")
def test_the_root_leads_to_the_latest_release(address: str, browser: Chromium) -> None:
    browser.open(f"{address}/")
    wait_until(lambda: browser.evaluate("location.pathname") == "/0.2/")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, which need not be there yet."""
    return tmp_path_factory.mktemp("site") / "site"


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Where a server on loopback shows the folder."""
    handler = partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser for all tests here."""
    chromium = Chromium(tmp_path_factory.mktemp("browser"))
    yield chromium
    chromium.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass


def _listed(site: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((site / "versions.json").read_text())
    return found
