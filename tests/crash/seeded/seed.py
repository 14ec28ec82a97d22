"""A seeded bug, and a copy of the tree to plant it in."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.helpers.database import ROOT
from tests.helpers.forked import PRELOADED, Zygote

_NEEDED = ("pytube", "sql", "migrations", "tests")
_TIMEOUT = 110
_LONG_TIMEOUT = 200


@dataclass(frozen=True)
class Seed:
    """Replaces `old`, which stands in `file` exactly once, by `new`."""

    name: str
    breaks: str
    """What is not kept any more, in a line."""
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Node ids of tests, below `tests/`, of which one at least must fail."""
    slow: bool = False

    def patched(self, tree: Path) -> str:
        """What the file in `tree` becomes; an AssertionError when the code is not as the seed knows it."""
        text = (tree / self.file).read_text()
        found = text.count(self.old)
        assert found == 1, (
            f"{self.name}: its text stands {found} times in {self.file}; bring the seed up to date"
        )
        return text.replace(self.old, self.new)

    def plant(self, tree: Path) -> None:
        """Patch the copy in `tree`; an AssertionError as of `patched`."""
        patched = self.patched(tree)
        path = tree / self.file
        path.unlink()  # it is a link
        path.write_text(patched)


def copy_tree(target: Path) -> None:
    """Link what tests need to run elsewhere, with the bytecode: it fits all files but the patched one."""
    for name in _NEEDED:
        shutil.copytree(ROOT / name, target / name, copy_function=_link)
    _link(ROOT / "pyproject.toml", target / "pyproject.toml")


def _link(source: str | Path, target: str | Path) -> None:
    """A hard link costs a fifth of a copy; on another file system it can only be a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@cache
def _zygote() -> Zygote:
    """Has all that the tests of a copy import, but for the copy's own packages."""
    return Zygote(("pytest", "hypothesis", "pytest_asyncio.plugin", *PRELOADED), forgets=("pytube", "tests"))


def failures(tree: Path, tests: tuple[str, ...], *, long: bool = False) -> tuple[list[str], str]:
    """Run the tests of a copy, `long`: also those of `make soak`; those that failed, and the output."""
    log = tree / "output"
    with log.open("wb") as output:
        run = _zygote().start(
            "pytest",
            [
                *("-x", "-q", "-rf", "--no-header", "--tb=line", "-p", "no:cacheprovider"),
                *(("-m", "soak or not soak") if long else ()),
                *(f"tests/{test}" for test in tests),
            ],
            # What a run of tests side by side sets is about this process. Where CI is set, Hypothesis draws
            # the same examples each time: a bug that they don't meet would never be found.
            environment={
                **{
                    name: value
                    for name, value in os.environ.items()
                    if name != "CI" and not name.startswith("PYTEST_")
                },
                "PYTUBE_TEST_LIMIT": "15",
            },
            output=output,
            folder=tree,
        )
        try:
            code = run.wait(_LONG_TIMEOUT if long else _TIMEOUT)
        finally:
            run.kill()
    said = log.read_text()
    # A test that could not be set up, or found, has found nothing.
    failed = [line for line in said.splitlines() if line.startswith("FAILED ")]
    return (failed if code == 1 else []), said
