"""What all scenarios share: a server, readings, rounds that interleave, statistics, the page."""
