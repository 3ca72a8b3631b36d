"""A stream while it is open: its plan, its choices' states, and one step at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar, final

import anyio

from .derender.stream_plan import StreamPlan
from .derender.stream_state import StreamState
from .offload.jobs import Body, Job
from .offload.offloader import Offloader
from .protocol.stream import ChunkChoice, GenerateChunk

__all__ = ["Call", "DerenderStream", "is_small", "opened_stream"]

C = TypeVar("C")
A = TypeVar("A")

Call = tuple[Job[Any], Body, tuple[Any, ...]]
"""A job for the offloader, its body, and what it gets behind plan and states."""

_SMALL_TOKENS = 64
_ENTRY_TOKENS = 4
"""What an entry of logprobs costs, in tokens without."""


@final
class DerenderStream(Generic[C, A]):
    """One engine's answer as it comes, made by `Derenderer.open_stream`; each choice has a state of its own.

    Steps run one after the other, in the order they were called, under the offloader's limits; a chunk
    smaller than a hop runs at once where the offloader's backend is ``auto``. A full queue makes a step wait.
    """

    def __init__(self, offloader: Offloader, plan: StreamPlan, call: Callable[[C], Call]) -> None:
        self._offloader = offloader
        self._plan = plan
        self._call = call
        self._states: dict[int, StreamState] = {plan.start.index: plan.start}
        self._turn = anyio.Lock(fast_acquire=True)
        self._closed = False

    async def step(self, chunk: C) -> A:
        """Return what the client gets for ``chunk``, which may hold several choices, in any order.

        Raises:
            InvalidRequest: see `chat_chunk`; the stream is then where it was before the step.
            RuntimeError: the stream was closed.

        Cancellation: as of `Derenderer`'s methods; the stream is then where it was before the step.
        """
        async with self._turn:
            if self._closed:
                raise RuntimeError("This stream is closed.")
            job, body, args = self._call(chunk)
            answer: A
            answer, changed = await self._offloader.run(
                job, body, self._plan, self._states, *args, admitted=True
            )
            self._states.update(changed)
            return answer

    def close(self) -> None:
        """Let go of the states. Done at the end of the ``async with`` block."""
        self._closed = True
        self._states.clear()


@asynccontextmanager
async def opened_stream(
    offloader: Offloader, opening: Call, call: Callable[[C], Call]
) -> AsyncIterator[DerenderStream[C, Any]]:
    """Open a stream for the length of the block.

    Args:
        opening: returns the stream's plan.
        call: what a step runs for a chunk; returns the answer, and the states that changed.
    """
    job, body, args = opening
    plan = await offloader.run(job, body, *args)
    stream: DerenderStream[C, Any] = DerenderStream(offloader, plan, call)
    try:
        yield stream
    finally:
        stream.close()


def is_small(chunk: GenerateChunk) -> bool:
    """Say whether a chunk's step costs less than a hop to a thread, as that of a few tokens does."""
    return sum(map(_size, chunk.choices)) <= _SMALL_TOKENS


def _size(choice: ChunkChoice) -> int:
    content = choice.logprobs.content if choice.logprobs is not None else None
    return len(choice.token_ids or ()) + sum(
        _ENTRY_TOKENS * (1 + len(place.top_logprobs)) for place in content or ()
    )
