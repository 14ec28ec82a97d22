"""Declared documents: `[document.NAME]` becomes a query, tables to follow, and paths back to the documents."""
