"""The chunks of a streamed answer, as whoever serves it takes them."""

from __future__ import annotations

from typing import Generic, TypeVar, final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from ..errors import RenderError
from ..protocol.stream import ChatChunk, CompletionChunk, GenerateChunk

__all__ = ["AnswerStream"]

C = TypeVar("C", bound=ChatChunk | CompletionChunk | GenerateChunk)


@final
class AnswerStream(Generic[C]):
    """The chunks of a streamed answer, in order. One task at a time may take them."""

    def __init__(self, chunks: MemoryObjectReceiveStream[C | RenderError]) -> None:
        self._chunks: MemoryObjectReceiveStream[C | RenderError] = chunks

    def __aiter__(self) -> AnswerStream[C]:
        return self

    async def __anext__(self) -> C:
        """Return the next chunk.

        Raises: what the engine and derendering raise; nothing comes behind it.

        Cancellation: loses no chunk; the stream can be asked again.
        """
        try:
            item = await self._chunks.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None
        if isinstance(item, RenderError):
            raise item
        return item
