"""Callers that were refused, and will be back."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["ToldToComeBack"]

_MAX_KEPT = 10_000


class ToldToComeBack:
    """How many callers have been told to come back, and are not due yet. Takes their word for it."""

    def __init__(self) -> None:
        self._due: deque[float] = deque(maxlen=_MAX_KEPT)

    def add(self, after_s: float) -> None:
        """Count a caller until ``after_s`` seconds from now."""
        self._due.append(time.monotonic() + after_s)

    def count(self) -> int:
        """Return how many are not due yet, but for some that were told to wait less than those before."""
        now = time.monotonic()
        while self._due and self._due[0] <= now:
            self._due.popleft()
        return len(self._due)
