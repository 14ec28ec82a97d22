"""Pods made from arrays of keys, and their way to Postgres. No Spark."""
