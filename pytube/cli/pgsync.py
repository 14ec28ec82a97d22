"""`pytube document from-pgsync`: the documents of a PGSync schema, in our words."""

from __future__ import annotations

from pathlib import Path

import click

from pytube.errors import UsageError


@click.command("from-pgsync")
@click.argument("schema", type=click.Path(path_type=Path))
def from_pgsync(schema: Path) -> None:
    """Write the sections [document.NAME] of a PGSync schema, the JSON file SCHEMA, to stdout.

    What does not translate, and what documents will have otherwise, is said on stderr. Nothing is read but
    that file, and nothing is changed.
    """
    from pytube.documents import pgsync

    try:
        text = schema.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{schema}: can't be read: {reason}") from None
    toml, remarks = pgsync.from_pgsync(text)
    click.echo(toml, nl=False)
    for remark in remarks:
        click.echo(remark, err=True)
