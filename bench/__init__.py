"""Measures pytube side by side with the plain way; docs/performance.md has what users decide by."""
