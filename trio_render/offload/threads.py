"""The thread backend: a job in a worker thread, its tokens held until the thread is done with it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from anyio import CapacityLimiter, from_thread, to_thread

from .jobs import Checkpoint

__all__ = ["ThreadBackend"]

R = TypeVar("R")


class _Gone(BaseException):
    """The caller was cancelled from outside anyio's scopes. Never leaves the worker thread."""


class _Run:
    """One job in a thread, and who of thread and caller gives its tokens back: whoever comes second.

    On asyncio a native cancellation (``task.cancel()``) lets the caller go while the thread runs on, and
    the thread is then the one that comes second. A caller who goes before the thread has begun is both.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._lock = threading.Lock()
        self._gone = threading.Event()
        self._running = False

    def checkpoint(self) -> None:
        if self._gone.is_set():
            raise _Gone
        from_thread.check_cancelled()

    def thread_begins(self) -> None:
        with self._lock:
            if self._gone.is_set():
                raise _Gone
            self._running = True

    def thread_ends(self) -> None:
        with self._lock:
            self._running = False
            abandoned = self._gone.is_set()
        if abandoned:
            # The event loop may have ended before us, and its limiters with it.
            with suppress(RuntimeError):
                from_thread.run_sync(self._release)

    def caller_goes(self) -> None:
        with self._lock:
            self._gone.set()
            running = self._running
        if not running:
            self._release()


class ThreadBackend:
    """Runs jobs through `anyio.to_thread.run_sync`. How many at a time is up to the caller's limiters."""

    def __init__(self) -> None:
        # The tokens that count are taken before the hop and given back by `_Run`; anyio's own would be
        # free on asyncio as soon as the caller goes.
        self._unlimited = CapacityLimiter(math.inf)

    async def run(
        self, work: Callable[[Checkpoint], R], release: Callable[[], None], ran_for: Callable[[float], Any]
    ) -> R:
        """Return ``work(checkpoint)``.

        Args:
            release: gives the caller's tokens back; called once, on the event loop, when the thread is done.
            ran_for: told how long the thread was busy, in seconds.

        Cancellation: the job ends at its next checkpoint, and then the caller goes.
        """
        run = _Run(release)
        seconds = 0.0

        def in_thread() -> R:
            nonlocal seconds
            run.thread_begins()
            began = time.perf_counter()
            try:
                return work(run.checkpoint)
            finally:
                seconds = time.perf_counter() - began
                run.thread_ends()

        try:
            return await to_thread.run_sync(in_thread, limiter=self._unlimited)
        finally:
            run.caller_goes()
            ran_for(seconds)
