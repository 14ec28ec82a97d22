"""Formats for `spark.read`, `readStream` and `write`: `tube` and `pgtable`."""
