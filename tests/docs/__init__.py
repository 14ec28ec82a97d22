"""Tests of the layer `docs`."""
