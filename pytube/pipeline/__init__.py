"""A partition worker's decisions as values and state machines: which keys wait, fly, or retry. No I/O."""
