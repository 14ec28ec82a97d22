"""The command line: one file a group of commands, each a thin layer over other packages."""

import sys

from pytube.collision import find_collision


def main() -> None:
    """The entry point of the program `pytube`."""
    # Here, since nothing can be relied on in a package that another distribution has overwritten in part.
    if (collision := find_collision()) is not None:
        sys.stderr.write(f"pytube: {collision}\n")
        sys.exit(2)
    from pytube.cli.program import cli

    cli(prog_name="pytube")
