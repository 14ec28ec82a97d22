"""Keys as arrays of numpy, whatever their type."""
