"""A task group for work that only accompanies a block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

__all__ = ["background_tasks"]


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
