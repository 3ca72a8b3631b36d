"""Bounded, ordered fan-out in a task group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

__all__ = ["fan_out"]

T = TypeVar("T")
R = TypeVar("R")


async def fan_out(work: Callable[[T], Awaitable[R]], items: Sequence[T], in_flight: int) -> list[R]:
    """Return ``[await work(item) for item in items]``, with up to ``in_flight`` of them at a time.

    No task exists for an item before it may run. The first failure cancels the others and leaves as
    itself, not as a group.

    Cancellation: cancels what is in flight; nothing else starts.
    """
    results: dict[int, R] = {}
    failures: list[Exception] = []
    pending = iter(enumerate(items))

    async def worker() -> None:
        for index, item in pending:
            try:
                results[index] = await work(item)
            except Exception as error:
                failures.append(error)
                raise

    try:
        async with anyio.create_task_group() as group:
            for _ in range(min(max(in_flight, 1), len(items))):
                group.start_soon(worker)
    except BaseExceptionGroup:
        if not failures:
            raise
        raise failures[0] from None
    return [results[index] for index in range(len(items))]
