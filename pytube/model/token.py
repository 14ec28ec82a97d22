"""Tokens order the writes of one key at a sink: by term first, then by draw within the term."""

from __future__ import annotations

from typing import NamedTuple

COUNTER_BITS = 28
_COUNTER_MASK = (1 << COUNTER_BITS) - 1


class Token(NamedTuple):
    """`(epoch, counter)`, compared as a pair; `int(token)` is `epoch << 28 | counter` (59 bits).

    Postgres, JSON and message headers carry the integer as text, because 59 bits do not fit a
    double. A store whose numbers are doubles compares the two fields one after the other.
    """

    epoch: int
    counter: int

    def __int__(self) -> int:
        return self.epoch << COUNTER_BITS | self.counter

    def __str__(self) -> str:
        return str(int(self))

    @classmethod
    def parse(cls, value: int | str) -> Token:
        """The token whose integer form is `value`; `ValueError` when it is not one."""
        number = int(value)
        if number < 0:
            raise ValueError(f"a token is not negative, got {value!r}")
        return cls(number >> COUNTER_BITS, number & _COUNTER_MASK)
