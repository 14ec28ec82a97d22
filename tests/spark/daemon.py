"""Forks the Python workers of tests, as PySpark's own does, but with all imported that they will want."""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

WANTED = (
    "adbc_driver_postgresql.dbapi",
    "numpy",
    "pandas",
    "psycopg",
    "pyarrow.compute",
    "pyspark.worker",
    "pytube.spark",
)

if __name__ == "__main__":
    for name in WANTED:
        importlib.import_module(name)
    manager()
