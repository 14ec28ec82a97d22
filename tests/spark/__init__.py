"""Spark: one session for all, and real servers."""
