"""`pytube config …`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
import orjson

from pytube.cli.context import Settings, json_option
from pytube.cli.output import print_json
from pytube.config import masked
from pytube.config.environment import key_path


@click.group()
def config() -> None:
    """The configuration file."""


@config.command()
@json_option
@click.pass_obj
def show(settings: Settings, as_json: bool) -> None:
    """Show the configuration with its defaults, and every secret masked."""
    shown = masked(settings.config())
    if as_json:
        print_json(shown)
        return
    for path, value in _flat(shown, ()):
        # Strings, numbers, flags and arrays are written the same in JSON and TOML.
        click.echo(f"{key_path(path)} = {orjson.dumps(value, default=str).decode()}")


def _flat(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, (*path, key))
    else:
        yield path, value
