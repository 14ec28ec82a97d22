"""Forks the Python processes of tests, as PySpark's own does, but with all imported that they will want.

The variable PRELOADED holds more names, joined by commas.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

from pyspark.daemon import manager

WANTED = (
    "adbc_driver_postgresql.dbapi",
    "numpy",
    "pandas",
    "psycopg",
    "pyarrow.compute",
)

if __name__ == "__main__":
    # The only argument is the module that each process runs.
    for name in (*WANTED, *sys.argv[1:], *filter(None, os.environ.get("PRELOADED", "").split(","))):
        importlib.import_module(name)
    # After each task a process looks for garbage: among all of these, for 60 ms, and it copies them.
    gc.freeze()
    manager()
