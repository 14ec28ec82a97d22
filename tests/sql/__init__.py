"""Tests of the layer `sql`."""
