"""Tubes and outboxes that a file declares without a document: what leads from the database to that."""
