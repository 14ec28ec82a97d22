"""Forks the Python workers of tests, as PySpark's own does, but with all imported that they will want.

The variable PRELOADED holds more names, joined by commas.
"""

from __future__ import annotations

import gc
import importlib
import os

from pyspark.daemon import manager

WANTED = (
    "adbc_driver_postgresql.dbapi",
    "numpy",
    "pandas",
    "psycopg",
    "pyarrow.compute",
    "pyspark.worker",
)

if __name__ == "__main__":
    for name in (*WANTED, *filter(None, os.environ.get("PRELOADED", "").split(","))):
        importlib.import_module(name)
    # After each task a process looks for garbage: among all of these, for 60 ms, and it copies them.
    gc.freeze()
    manager()
