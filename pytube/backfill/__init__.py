"""Backfills: every row of a table touched once, in chunks."""
