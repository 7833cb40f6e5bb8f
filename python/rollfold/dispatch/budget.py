"""How long a run may dispatch."""

from bisect import bisect_left, insort
from collections import deque
from typing import Final

DURATIONS_KEPT: Final = 512
"""Durations that the drain margin is learned from: the latest."""


class Budget:
    """The seconds a run may dispatch for, and the margin it leaves for what runs at their end.

    Args:
        seconds: from the start; running rows are cancelled then.
        margin_s: no row starts when fewer seconds are left; None to learn it: the 75th
            percentile of the run's durations so far.
    """

    def __init__(self, seconds: float, margin_s: float | None) -> None:
        self.seconds = seconds
        self._margin_s = margin_s
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def note(self, seconds: float) -> None:
        """Learn from a row that ran to its end."""
        if len(self._recent) == DURATIONS_KEPT:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(seconds)
        insort(self._sorted, seconds)

    @property
    def margin_s(self) -> float:
        """The margin now, in seconds."""
        if self._margin_s is not None:
            return self._margin_s
        if not self._sorted:
            return 0.0
        return self._sorted[(3 * (len(self._sorted) - 1) + 3) // 4]
