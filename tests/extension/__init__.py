"""Tests of `CREATE EXTENSION pytube`."""
