"""Declared documents: `[document.NAME]` as a query, tables to follow, and paths back to documents."""
