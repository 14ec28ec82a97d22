"""Whether a sink opens."""

from __future__ import annotations

import asyncio

from pytube.config import SinkConfig
from pytube.errors import ConfigError, PytubeError
from pytube.health.check import Check, fail, ok
from pytube.sinks import build_sink


def check_sink(tube: str, config: SinkConfig) -> Check:
    """Open the sink of a tube, and close it."""
    subject = f"sink of {tube}"
    try:
        asyncio.run(_open_and_close(config))
    except ConfigError as error:
        return fail(subject, str(error), f'correct [tube."{tube}".sink]')
    except TimeoutError:
        finding = f"{config.type} did not open within {config.request_timeout:g} s"
        return fail(subject, finding, "see that it is up and can be reached from here")
    except PytubeError as error:
        return fail(subject, str(error), "see that it is up and can be reached from here")
    except Exception as error:  # noqa: BLE001 - a sink may be anybody's code
        finding = f"{config.type} failed to open: {type(error).__name__}: {error}"
        return fail(subject, finding, "see the sink's documentation")
    return ok(subject, f"{config.type} opens")


async def _open_and_close(config: SinkConfig) -> None:
    sink = build_sink(config.type, config.options)
    try:
        async with asyncio.timeout(config.request_timeout):
            await sink.open()
    finally:
        await sink.close()
