"""Seeded bugs: small patches that each break a promise, and the quickest tests that must find them."""
