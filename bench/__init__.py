"""Measures pytube side by side with the plain way, and writes docs/performance.md."""
