"""`python -m pytube` is the program `pytube`."""

from pytube.cli import main

main()
