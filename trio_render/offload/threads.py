"""The thread backend: a job in a worker thread, its tokens held until the thread is done with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TypeVar

from anyio import CapacityLimiter, from_thread, to_thread

from .jobs import Checkpoint

__all__ = ["ThreadBackend"]

R = TypeVar("R")


class _Gone(BaseException):
    """The caller was cancelled from outside anyio's scopes. Never leaves the worker thread."""


class _Run(CapacityLimiter):
    """One job in a thread, and who of thread and caller gives its tokens back: whoever comes second.

    On asyncio a native cancellation (``task.cancel()``) lets the caller go while the thread runs on, and
    the thread is then the one that comes second. A caller who goes before the thread has begun is both.

    It is also the limiter that `anyio.to_thread.run_sync` asks for: one that lets the job pass, whose tokens
    have been taken, without the turn of the event loop that another limiter would take; and that Trio tells
    that the thread is done, a turn before the caller hears of it.
    """

    def __new__(cls, *args: Any) -> Self:
        return object.__new__(cls)

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._lock = threading.Lock()
        self._gone = False
        self._running = False
        self._released = False

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        pass

    def release_on_behalf_of(self, borrower: object) -> None:
        self.caller_goes()

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    def checkpoint(self) -> None:
        if self._gone:
            raise _Gone
        from_thread.check_cancelled()

    def thread_begins(self) -> None:
        with self._lock:
            if self._gone:
                raise _Gone
            self._running = True

    def thread_ends(self) -> None:
        with self._lock:
            self._running = False
            abandoned = self._gone
        if abandoned:
            # The event loop may have ended before us, and its limiters with it.
            with suppress(RuntimeError):
                from_thread.run_sync(self._release)

    def caller_goes(self) -> None:
        with self._lock:
            self._gone = True
            at_work = self._running or self._released
            self._released = self._released or not at_work
        if not at_work:
            self._release()


class ThreadBackend:
    """Runs jobs through `anyio.to_thread.run_sync`. How many at a time is up to the caller's limiters."""

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
            return await to_thread.run_sync(in_thread, limiter=run)
        finally:
            run.caller_goes()
            ran_for(seconds)
