"""Formats for `spark.read`, `readStream` and `write`: `tube`, `outbox` and `pgtable`."""
