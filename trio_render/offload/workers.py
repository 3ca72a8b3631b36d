"""Run a job in a worker thread, and end it when its caller goes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from anyio import CapacityLimiter, from_thread, to_thread

__all__ = ["run_in_thread"]

P = ParamSpec("P")
T = TypeVar("T")


class _Gone(BaseException):
    """The caller was cancelled from outside anyio's scopes. Never leaves this module."""


async def run_in_thread(
    job: Callable[Concatenate[Callable[[], None], P], T],
    limiter: CapacityLimiter,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Return ``job(checkpoint, *args, **kwargs)``, run in a thread that holds a token of ``limiter``.

    The job calls ``checkpoint()`` at least once per millisecond of work; it raises when the caller has
    gone, and the job must let that pass.

    Cancellation: while waiting for a token, the caller goes at once and nothing runs. While the job runs,
    it ends at its next checkpoint, and only then does the caller go and the token come back. A native
    cancellation on asyncio (``task.cancel()``, ``asyncio.timeout``) lets the caller go at once; the job
    still ends at its next checkpoint.
    """
    gone = threading.Event()

    def checkpoint() -> None:
        if gone.is_set():
            raise _Gone
        from_thread.check_cancelled()

    def work() -> T:
        return job(checkpoint, *args, **kwargs)

    try:
        return await to_thread.run_sync(work, limiter=limiter)
    except BaseException:
        gone.set()
        raise
