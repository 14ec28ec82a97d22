"""The only app."""
