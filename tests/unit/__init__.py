"""Tests of the layer `unit`."""
