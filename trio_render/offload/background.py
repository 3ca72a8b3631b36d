"""Work that only accompanies a block: a task group for it, and a thread that may be left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

__all__ = ["background_tasks", "in_abandoned_thread"]

R = TypeVar("R")


@asynccontextmanager
async def background_tasks() -> AsyncIterator[TaskGroup]:
    """Open a task group whose tasks are cancelled when the block ends.

    An error of the block leaves as itself, not in a group; an error of a task ends the block, and leaves in
    a group as usual.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except Exception as error:
            failure = error
        finally:
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def in_abandoned_thread(function: Callable[[], R]) -> R:
    """Return ``function()``, which runs in a worker thread.

    Cancellation: the caller goes at once; the thread runs on, and its result is dropped.
    """
    return await to_thread.run_sync(function, abandon_on_cancel=True)
