"""Where the pages are that help and findings name. The one place to change when they get an address."""

from __future__ import annotations

from typing import Final

_PAGES: Final = "docs/"
"""The folder of the repository; or an address that ends in a slash."""


def page(name: str) -> str:
    """The address of `name`, a page with perhaps `#` and a section, such as `errors.md#sink-down`."""
    return _PAGES + name
