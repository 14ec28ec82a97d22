"""Administration of tubes: make, attach, look at, take away."""
