"""Jobs that wait for the test, so that nothing has to be timed."""

import threading
from collections.abc import Callable

import anyio
from anyio import CapacityLimiter

PATIENCE_S = 30
"""When a test gives up. No test waits for it to pass."""


class Gate:
    """A job that reports its start and works, with checkpoints, until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.started = threading.Semaphore(0)
        self.runs = 0
        self.running = 0
        self.most_running = 0
        self.ended = 0
        self._lock = threading.Lock()

    def job(self, checkpoint: Callable[[], None]) -> str:
        self._enter()
        try:
            while not self.opened.wait(0.001):
                checkpoint()
            return "done"
        finally:
            self._leave()

    def deaf_job(self, checkpoint: Callable[[], None]) -> str:
        """Like one long call into C: nothing can end it."""
        self._enter()
        try:
            assert self.opened.wait(PATIENCE_S)
            return "done"
        finally:
            self._leave()

    def _enter(self) -> None:
        with self._lock:
            self.runs += 1
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        self.started.release()

    def _leave(self) -> None:
        with self._lock:
            self.running -= 1
            self.ended += 1

    async def wait_started(self, jobs: int = 1) -> None:
        """Wait until so many more jobs run."""
        for _ in range(jobs):
            await until(lambda: self.started.acquire(blocking=False))

    async def wait_ended(self, jobs: int = 1) -> None:
        """Wait until so many jobs have ended in all."""
        await until(lambda: self.ended >= jobs)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that a thread does, which can't set an event of the loop."""
    with anyio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def wait_for_waiters(limiter: CapacityLimiter, waiting: int) -> None:
    """Wait until so many tasks wait for a token."""
    await until(lambda: limiter.statistics().tasks_waiting >= waiting)


async def wait_idle(limiter: CapacityLimiter) -> None:
    """Wait until no token is borrowed."""
    await until(lambda: limiter.statistics().borrowed_tokens == 0)
