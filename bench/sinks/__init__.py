"""Sinks that measure."""
