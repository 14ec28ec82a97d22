"""Backfills: every row of a table touched once, in chunks, by whoever has the right to."""
