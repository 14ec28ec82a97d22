"""Sources: everything that a line asks of the database about its pods, fenced by its term."""
