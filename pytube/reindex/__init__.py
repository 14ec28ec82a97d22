"""Fills a new copy beside the live one, compares it with the source, and has it take the old one's place."""
