"""The deadline of a term's trust: its right to send, counted from when the last proof was *sent*. Pure.

Counting from sending, not from receiving, keeps the deadline right however long the answer took or the
process was stopped. All times are of `pytube.clock`.
"""

from __future__ import annotations


class TermDeadline:
    """When one term must stop sending, unless both the election and the database prove it again."""

    def __init__(self, deadline: float, sent_at: float) -> None:
        """Args:
        deadline: seconds for which a proof holds.
        sent_at: when the acquire of the term was sent: its first proof by the database.
        """
        self._deadline = deadline
        self._renewed_at = sent_at

    def confirm_renewal(self, sent_at: float) -> None:
        """The database confirmed a renewal that was sent then."""
        self._renewed_at = max(self._renewed_at, sent_at)

    def until(self, proven_at: float) -> float:
        """When the trust ends, given the election's last proof."""
        return min(self._renewed_at, proven_at) + self._deadline
