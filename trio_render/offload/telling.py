"""A job that tells of its work while it runs, and the iterator that hears it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar, final

import anyio
from anyio import from_thread
from anyio.streams.memory import MemoryObjectReceiveStream

from .background import background_tasks
from .jobs import Body, Job
from .offloader import Offloader

__all__ = ["Tell", "telling"]

T = TypeVar("T")

Tell = Callable[[T], None]
"""Called by the job, in its thread: hands one thing to the event loop. One hop; never waits for room."""


@final
class _Told(Generic[T]):
    """What a job tells, in order; ends when the job has ended, with its error if it has one.

    A class and no generator: one that is left in the middle of its work needs nobody to close it.
    """

    def __init__(self, receive: MemoryObjectReceiveStream[T]) -> None:
        self._receive = receive
        self.failure: Exception | None = None

    def __aiter__(self) -> _Told[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            pass
        if self.failure is not None:
            raise self.failure
        raise StopAsyncIteration


@asynccontextmanager
async def telling(
    offloader: Offloader, job: Job[None], body: Body, *args: Any
) -> AsyncIterator[AsyncIterator[Any]]:
    """Run a job for the length of an ``async with`` block; the block gets what the job tells.

    What nobody has fetched yet is kept: a slow consumer doesn't hold up the job, nor others who wait for its
    tokens. The job, which must run in a thread, gets a `Tell` before ``args``.

    Raises, on entering or from the iterator: `Overloaded` when the queue before the job's limiter is full.
    Raises, from the iterator: what the job raises.

    Cancellation: the end of the block ends the job at its next checkpoint, and waits for that.
    """
    offloader.check_admission(job.kind)
    send, receive = anyio.create_memory_object_stream[Any](math.inf)
    told = _Told(receive)

    def tell(thing: Any) -> None:
        from_thread.run_sync(send.send_nowait, thing)

    async def run() -> None:
        with send:
            try:
                await offloader.run(job, body, tell, *args)
            except Exception as error:
                told.failure = error

    with send, receive:
        async with background_tasks() as group:
            group.start_soon(run)
            yield told
