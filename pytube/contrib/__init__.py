"""Integrations with frameworks; each module needs its framework installed."""
