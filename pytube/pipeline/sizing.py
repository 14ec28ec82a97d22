"""How many keys to read at once, so that their documents stay within a bound of bytes. Pure."""

from __future__ import annotations


class BatchSize:
    """Follows the size of documents: large ones make small batches before memory is gone."""

    _CAUTIOUS = 64
    _WEIGHT = 0.3

    def __init__(self, max_keys: int, max_bytes: int) -> None:
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._average: float | None = None

    @property
    def keys(self) -> int:
        """Keys for the next batch: at least 1; few, as long as no document was seen."""
        if self._average is None:
            return min(self._CAUTIOUS, self._max_keys)
        return max(1, min(self._max_keys, int(self._max_bytes / max(self._average, 1.0))))

    def observe(self, documents: int, size: int) -> None:
        """A batch of `documents` had `size` bytes in all. Growth counts at once, shrinking slowly."""
        if not documents:
            return
        average = size / documents
        if self._average is None or average > self._average:
            self._average = average
        else:
            self._average += self._WEIGHT * (average - self._average)
