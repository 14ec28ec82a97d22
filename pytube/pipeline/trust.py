"""Trust: a leader's right to send, until a deadline after its last proof was *sent*. Pure.

Counting from the moment of sending, not of receiving, makes the deadline hold however long the
answer was under way or the process was stopped. All moments are of `pytube.clock`.
"""

from __future__ import annotations


class Trust:
    """The trust of one term: both the election and the database must have proved it lately."""

    def __init__(self, deadline: float, sent_at: float) -> None:
        """Args:
        deadline: seconds for which a proof holds.
        sent_at: when the acquire of the term was sent: its first proof by the database.
        """
        self._deadline = deadline
        self._renewed_at = sent_at

    def renewed(self, sent_at: float) -> None:
        """The database confirmed a renewal that was sent then."""
        self._renewed_at = max(self._renewed_at, sent_at)

    def until(self, proven_at: float) -> float:
        """When the trust ends, given the election's last proof."""
        return min(self._renewed_at, proven_at) + self._deadline
