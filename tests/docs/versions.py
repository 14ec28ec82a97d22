"""`make docs-versions`: the documentation of each released minor version, and of this checkout, as one site.

A minor version is built from its newest tag `vX.Y.Z`, with the pages and the navigation of the tag. Nothing
is stored between builds, so a release needs no step but its tag. A patch release corrects an old page.

    .site/0.2/  .site/0.1/  .site/dev/    a folder for each version; `dev` is the checkout
    .site/versions.json                   what the selector in the header offers
    .site/index.html                      leads to the newest release; to `dev` while there is none
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
DEV = "dev"
LATEST = "latest"
_TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
_CONFIG = "zensical.toml"
_SELECTOR = f"""
[project.extra.version]
provider = "mike"
default = "{LATEST}"
"""
"""Has the theme read versions.json, one folder above each version, in the format of mike."""
_OVERRIDES = """{% extends "base.html" %}
{% block outdated %}
This is not the latest release. <a href="{{ base_url }}/..">Go to the latest</a>
{% endblock %}
"""
_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<title>pytube</title>
<meta http-equiv="refresh" content="0; url={name}/">
<a href="{name}/">Documentation</a>
"""


@dataclass(frozen=True, slots=True)
class Version:
    """A folder of the site, and the tag that it is built from; None: the checkout."""

    name: str
    tag: str | None
    is_latest: bool

    def listed(self) -> dict[str, object]:
        """Its entry in versions.json."""
        title = self.tag.removeprefix("v") if self.tag else "not released"
        return {"version": self.name, "title": title, "aliases": [LATEST] if self.is_latest else []}


def versions(tags: list[str]) -> list[Version]:
    """The newest patch of each minor version, newest first, and the checkout at the end; no other tags."""
    newest: dict[tuple[int, int], int] = {}
    for tag in tags:
        if found := _TAG.fullmatch(tag):
            major, minor, patch = (int(number) for number in found.groups())
            newest[major, minor] = max(patch, newest.get((major, minor), 0))
    ordered = sorted(newest.items(), reverse=True)
    released = [
        Version(f"{major}.{minor}", f"v{major}.{minor}.{patch}", number == 0)
        for number, ((major, minor), patch) in enumerate(ordered)
    ]
    return [*released, Version(DEV, None, not released)]


def build(repository: Path, site: Path, url: str = "") -> list[Version]:
    """Build all versions of a repository into a folder, whose earlier content is removed.

    With the site's address, the selector stays on the page if the other version has it. Without, it leads to
    the first page.
    """
    tags = _git(repository, "tag", "--list", "v*").decode().split()
    found = versions(tags)
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    for version in found:
        with TemporaryDirectory(prefix="pytube-docs-") as name:
            source = Path(name)
            _get(repository, version.tag, source)
            _build_one(source, f"{url.rstrip('/')}/{version.name}/" if url else "")
            shutil.move(source / "site", site / version.name)
    (site / "versions.json").write_text(json.dumps([one.listed() for one in found], indent=2) + "\n")
    (latest,) = (one.name for one in found if one.is_latest)
    (site / "index.html").write_text(_REDIRECT.format(name=latest))
    return found


def _get(repository: Path, tag: str | None, into: Path) -> None:
    if tag is None:
        shutil.copytree(repository / "docs", into / "docs")
        shutil.copy(repository / _CONFIG, into)
        return
    with tarfile.open(fileobj=io.BytesIO(_git(repository, "archive", tag, "docs", _CONFIG))) as archive:
        archive.extractall(into, filter="data")


def _build_one(source: Path, url: str) -> None:
    """Build the pages in a folder, with the selector, into its folder `site`."""
    config = source / _CONFIG
    text = re.sub(r"^(site_dir|site_url) = .*\n", "", config.read_text(), flags=re.MULTILINE)
    address = f'site_url = "{url}"\n' if url else ""
    text = _added(text, "project", f'site_dir = "site"\n{address}')
    text = _added(text, "project.theme", 'custom_dir = "overrides"\n')
    config.write_text(text + _SELECTOR)
    (source / "overrides").mkdir()
    (source / "overrides/main.html").write_text(_OVERRIDES)
    zensical = Path(sys.executable).with_name("zensical")
    subprocess.run([zensical, "build", "--strict", "--clean"], cwd=source, check=True)


def _added(text: str, section: str, lines: str) -> str:
    """The configuration with more lines at the head of a section."""
    heading = f"[{section}]\n"
    if heading not in text:
        raise SystemExit(f"{_CONFIG} has no section [{section}]")
    return text.replace(heading, heading + lines, 1)


def _git(repository: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", repository, *arguments], check=True, capture_output=True).stdout


def main() -> None:
    """Build them into .site, and say which. An argument is the address where they will be."""
    site = ROOT / ".site"
    for version in build(ROOT, site, *sys.argv[1:2]):
        sys.stdout.write(f"{site.name}/{version.name}: {version.tag or 'this checkout'}\n")


if __name__ == "__main__":
    main()
