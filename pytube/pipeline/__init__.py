"""A partition worker's decisions as values and state machines: what waits, flies, is sent again. No I/O."""
