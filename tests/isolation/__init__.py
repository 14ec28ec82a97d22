"""Tests of the layer `isolation`."""
