"""The hand-over between leaders as a model, checked in all its states."""
