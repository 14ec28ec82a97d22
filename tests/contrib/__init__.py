"""Tests of the integrations with frameworks, each with its framework."""
