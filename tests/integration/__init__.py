"""Tests of the layer `integration`."""
