"""Tests of the layer `crash`."""
