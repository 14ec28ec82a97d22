"""The decisions of a line as values and state machines: what waits, flies, is sent again. No I/O."""
