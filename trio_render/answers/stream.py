"""The chunks of a streamed answer, as whoever serves it takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar, final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from ..errors import RenderError
from ..offload.background import background_tasks
from ..protocol.stream import ChatChunk, CompletionChunk, GenerateChunk

__all__ = ["AnswerStream", "Send", "open_answer"]

C = TypeVar("C", bound=ChatChunk | CompletionChunk | GenerateChunk)

Send = Callable[[C], Awaitable[None]]

_BUFFERED_CHUNKS = 16


@final
class AnswerStream(Generic[C]):
    """The chunks of a streamed answer, in order. One task at a time may take them."""

    def __init__(self, chunks: MemoryObjectReceiveStream[C]) -> None:
        self._chunks = chunks
        self._failure: Exception | None = None
        self._told = False

    def __aiter__(self) -> AnswerStream[C]:
        return self

    async def __anext__(self) -> C:
        """Return the next chunk.

        Raises: what the engine and derendering raise; nothing comes behind it.

        Cancellation: loses no chunk; the stream can be asked again.
        """
        try:
            return await self._chunks.receive()
        except anyio.EndOfStream:
            pass
        if self._failure is not None:
            self._told = True
            raise self._failure
        raise StopAsyncIteration

    def fail(self, error: Exception) -> None:
        """Say what comes behind the chunks that were sent."""
        self._failure = error

    def raise_bug(self) -> None:
        """Raise the failure if it is a bug that nobody has met. Other errors are of the answer alone."""
        if self._failure is not None and not self._told and not isinstance(self._failure, RenderError):
            raise self._failure


@asynccontextmanager
async def open_answer(produce: Callable[[Send[C]], Awaitable[object]]) -> AsyncIterator[AnswerStream[C]]:
    """Open what ``produce`` sends as a stream, for the length of the block, whose end stops it.

    Its error comes behind the chunks that it has sent, so that it interrupts nobody who handles one of them.
    A bug that comes up while the block is left or cancelled leaves the block, as itself.
    """
    send, receive = anyio.create_memory_object_stream[C](_BUFFERED_CHUNKS)
    stream = AnswerStream(receive)

    async def run() -> None:
        with send:
            try:
                await produce(send.send)
            except anyio.BrokenResourceError:
                pass  # Who takes the chunks has gone: the block is about to end.
            except Exception as error:
                stream.fail(error)

    try:
        # Closed here as well: a task that is cancelled before its first step closes nothing.
        with send:
            async with background_tasks() as group, receive:
                group.start_soon(run)
                yield stream
    except Exception:
        raise
    except BaseException:
        stream.raise_bug()
        raise
    stream.raise_bug()
