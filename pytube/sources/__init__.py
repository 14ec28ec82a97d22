"""Sources: everything that a partition's worker asks of the database, fenced by its term."""
