"""Lengths of time for people."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Milliseconds below one second, else seconds with one decimal."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    return f"{seconds:.1f} s"
