"""The command line: one file a group of commands, each a thin layer over what it calls."""

from pytube.cli.main import cli


def main() -> None:
    """The entry point of the program `pytube`."""
    cli(prog_name="pytube")
