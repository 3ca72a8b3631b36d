"""A token-in request's answer: what the engine says, and nothing derendered."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import final

from msgspec.structs import replace

from ..engine.base import Engine
from ..engine.wire import Collected
from ..protocol.decoding import encode
from ..protocol.generate import GenerateRequest, GenerateResponse
from ..protocol.stream import GenerateChunk
from ..protocol.usage import counts_always, counts_at_end, token_counts
from .stream import AnswerStream, Send, open_answer

__all__ = ["StartedTokens"]


@final
class StartedTokens:
    """A token-in request, checked."""

    def __init__(self, engine: Engine, request: GenerateRequest) -> None:
        self.request = request
        self._engine = engine

    @property
    def streams(self) -> bool:
        """Whether the request asks for a stream."""
        return self.request.stream

    async def answer(self) -> GenerateResponse:
        """Generate, and return the whole answer."""
        collected = Collected(self.request)
        async with self._engine.generate(self.request) as chunks:
            async for chunk in chunks:
                collected.add(chunk)
        return collected.response()

    async def answer_json(self) -> bytes:
        """Return `answer` as JSON."""
        return encode(await self.answer())

    def open_stream(self) -> AbstractAsyncContextManager[AnswerStream[GenerateChunk]]:
        """Open the answer as a stream, for the length of the block."""
        return open_answer(self._produce)

    async def _produce(self, send: Send[GenerateChunk]) -> None:
        options = self.request.stream_options
        with_each = counts_always(options)
        n_prompt, n_tokens = len(self.request.token_ids), 0
        async with self._engine.generate(self.request) as chunks:
            async for chunk in chunks:
                n_tokens += sum(len(choice.token_ids or ()) for choice in chunk.choices)
                if not chunk.choices:
                    continue  # The engine's own count; ours comes last.
                usage = token_counts(n_prompt, n_tokens) if with_each else None
                await send(replace(chunk, request_id=self.request.request_id, usage=usage))
        if counts_at_end(options):
            usage = token_counts(n_prompt, n_tokens)
            await send(GenerateChunk(request_id=self.request.request_id, choices=[], usage=usage))
