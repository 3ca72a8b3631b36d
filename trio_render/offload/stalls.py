"""A debug aid: tells when the event loop's own thread works too long between two turns, and on what.

A loop can be late because other threads hold the GIL, or because the machine is busy. This measures the
processor time of the loop's thread, so it reports only what the loop itself has been made to do.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from .background import background_tasks

__all__ = ["Stall", "watch_loop"]

_LOOKS_PER_BOUND = 4


@dataclass(frozen=True, slots=True)
class Stall:
    """One turn of the event loop that took too long.

    Attributes:
        busy_s: processor time of the loop's thread in this turn, so far.
        stack: where it was when the bound was passed, innermost call last.
    """

    busy_s: float
    stack: str


class _Watch:
    """Compares, from a thread of its own, the loop's heartbeat with its processor time."""

    def __init__(self, bound_s: float, report: Callable[[Stall], None]) -> None:
        self._bound_s = bound_s
        self._report = report
        self._thread_id = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread_id)
        self._beat = self._busy()
        self._reported = -1.0
        self.stop = threading.Event()

    def _busy(self) -> float:
        return time.clock_gettime(self._clock)

    def beat(self) -> None:
        """Say that the loop has come round."""
        self._beat = self._busy()

    def look_until_stopped(self) -> None:
        while not self.stop.wait(self._bound_s / _LOOKS_PER_BOUND):
            beat = self._beat
            busy = self._busy() - beat
            if busy > self._bound_s and beat != self._reported:
                frame = sys._current_frames().get(self._thread_id)
                stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
                self._reported = beat
                self._report(Stall(busy, stack))


@asynccontextmanager
async def watch_loop(bound_s: float, report: Callable[[Stall], None]) -> AsyncIterator[None]:
    """Call ``report`` (from another thread) for each turn of this event loop that is busy for ``bound_s``.

    For debugging and tests: it wakes the loop several times per ``bound_s``. Needs a clock per thread, as
    Linux has.
    """
    watch = _Watch(bound_s, report)
    thread = threading.Thread(target=watch.look_until_stopped, name="trio_render-watch-loop", daemon=True)

    async def beat() -> None:
        while True:
            watch.beat()
            await anyio.sleep(bound_s / _LOOKS_PER_BOUND)

    async with background_tasks() as group:
        group.start_soon(beat)
        thread.start()
        try:
            yield
        finally:
            watch.stop.set()
            thread.join()
