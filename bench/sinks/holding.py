"""A sink that answers when it may."""

from __future__ import annotations

import asyncio

from pytube.model import Batch

release = asyncio.Event()


async def hold(batch: Batch) -> None:  # noqa: ARG001 # a sink is given one
    """Wait."""
    await release.wait()
