"""What chat and completion answers share: generating, counting, one stream of all prompts' chunks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
from msgspec import Raw
from msgspec.structs import replace

from ..derenderer import Derenderer
from ..engine.base import Engine
from ..engine.wire import Collected
from ..errors import EngineError, InvalidRequest
from ..fanout import fan_out
from ..protocol.chat import ChatRequest
from ..protocol.completion import CompletionRequest
from ..protocol.front import Echo
from ..protocol.generate import GenerateRequest, GenerateResponse
from ..protocol.sampling import DELTAS, FINAL_ONLY
from ..protocol.stream import (
    ChatChunk,
    ChatChunkChoice,
    CompletionChunk,
    CompletionChunkChoice,
    GenerateChunk,
)
from ..protocol.usage import counts_always, counts_at_end, token_counts
from ..streams import DerenderStream
from .stream import AnswerStream, Send, open_answer

if TYPE_CHECKING:
    import torch

__all__ = ["Progress", "Prompt", "Started", "engine_at_fault"]

R = TypeVar("R", bound=ChatRequest | CompletionRequest)
C = TypeVar("C", bound=ChatChunk | CompletionChunk)

_LAST_BYTES_S = 0.1


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a request, ready for an engine.

    Attributes:
        n_tokens: its length; that of ``embeds`` in rows.
        embeds: the prompt, where ``generate`` has no token ids.
        echo: comes back in front of its answers.
    """

    generate: GenerateRequest
    n_tokens: int
    embeds: torch.Tensor | None = None
    echo: Echo | None = None


class Progress:
    """How far a prompt's stream has come.

    Attributes:
        shown: choices of which a chunk was sent.
        echoed: the logprobs of an echoed prompt, if they were asked for.
    """

    def __init__(self, n_choices: int) -> None:
        self.n_tokens = 0
        self.shown: set[int] = set()
        self.echoed: Raw | None = None
        self._n_choices = n_choices
        self._ended: set[int] = set()
        self._engine_ended: set[int] = set()

    def add(self, chunk: GenerateChunk) -> None:
        self.n_tokens += sum(len(choice.token_ids or ()) for choice in chunk.choices)
        self._engine_ended.update(
            choice.index for choice in chunk.choices if choice.finish_reason is not None
        )

    @property
    def engine_is_done(self) -> bool:
        """Whether the engine itself has ended all choices."""
        return len(self._engine_ended) == self._n_choices

    def is_over(self, choices: Sequence[ChatChunkChoice | CompletionChunkChoice]) -> bool:
        """Say whether all have ended with these, some at a stop string that the engine knows nothing of."""
        self._ended.update(choice.index for choice in choices if choice.finish_reason is not None)
        return len(self._ended) == self._n_choices


class Started(ABC, Generic[R, C]):
    """A request that has been checked and rendered.

    Attributes:
        id: the ``id`` of its answer and of each chunk.
    """

    def __init__(
        self, derenderer: Derenderer, engine: Engine, request: R, prompts: list[Prompt], answer_id: str
    ) -> None:
        self.request: R = request
        self.id = answer_id
        self._derenderer = derenderer
        self._engine = engine
        self._prompts = prompts
        self._created = int(time.time())

    @property
    def streams(self) -> bool:
        """Whether the request asks for a stream."""
        return bool(self.request.stream)

    def open_stream(self) -> AbstractAsyncContextManager[AnswerStream[C]]:
        """Open the answer as a stream, for the length of the block. Prompts are interleaved as they come.

        Raises, from the stream: see `AnswerStream`.
        """
        return open_answer(self._produce)

    async def _produce(self, send: Send[C]) -> None:
        async def one_prompt(place: int) -> int:
            return await self._stream_prompt(place, send)

        counts = await fan_out(one_prompt, range(len(self._prompts)), self._engine.in_flight)
        if counts_at_end(self.request.stream_options):
            await send(self._chunk([], self._usage(self._prompts, sum(counts))))

    async def _stream_prompt(self, place: int, send: Send[C]) -> int:
        """Send a prompt's chunks; return how many tokens were generated."""
        prompt = self._prompts[place]
        first_index = place * prompt.generate.sampling_params.n
        progress = Progress(prompt.generate.sampling_params.n)
        async with (
            self._engine.generate(_asked(prompt.generate, streamed=True), prompt.embeds) as chunks,
            self._open_prompt_stream(prompt) as stream,
        ):
            async for chunk in chunks:
                progress.add(chunk)
                with engine_at_fault():
                    answer = await stream.step(self._given(prompt, chunk, progress))
                    parts = await self._parts(prompt, chunk, list(answer.choices), progress)
                progress.shown.update(choice.index for choice in answer.choices)
                usage = None
                if counts_always(self.request.stream_options):
                    usage = self._usage([prompt], progress.n_tokens)
                for choices in parts:
                    shown = [
                        replace(choice, index=first_index + choice.index)
                        for choice in choices
                        if self._shows(choice)
                    ]
                    if shown:
                        await send(self._chunk(shown, usage, answer))
                if progress.is_over(answer.choices):
                    if progress.engine_is_done:
                        await _read_to_the_end(chunks)
                    return progress.n_tokens
        raise EngineError("The engine's answer ended before all its choices did.")

    def _given(self, prompt: Prompt, chunk: GenerateChunk, progress: Progress) -> GenerateChunk:
        """Return an engine's chunk as the derenderer wants it: prompt ids once, where they were asked for."""
        wanted = self.request.return_token_ids and self._begins(chunk, progress)
        prompt_ids = prompt.generate.token_ids if wanted else None
        return replace(chunk, request_id=self.id, usage=None, prompt_token_ids=prompt_ids)

    def _usage(self, prompts: list[Prompt], n_tokens: int) -> dict[str, Any]:
        return token_counts(sum(prompt.n_tokens for prompt in prompts), n_tokens)

    async def _responses(self) -> list[GenerateResponse]:
        return await fan_out(self._response, self._prompts, self._engine.in_flight)

    async def _response(self, prompt: Prompt) -> GenerateResponse:
        collected = Collected(prompt.generate)
        generate = _asked(prompt.generate, streamed=False)
        async with self._engine.generate(generate, prompt.embeds) as chunks:
            async for chunk in chunks:
                collected.add(chunk)
        response = replace(collected.response(), request_id=self.id)
        if self.request.return_token_ids and response.prompt_token_ids is None:
            response = replace(response, prompt_token_ids=prompt.generate.token_ids)
        return response

    @abstractmethod
    def _open_prompt_stream(
        self, prompt: Prompt
    ) -> AbstractAsyncContextManager[DerenderStream[GenerateChunk, C]]: ...

    @abstractmethod
    def _begins(self, chunk: GenerateChunk, progress: Progress) -> bool:
        """Say whether a chunk begins what has the prompt's ids in front of it."""

    @abstractmethod
    async def _parts(
        self, prompt: Prompt, chunk: GenerateChunk, choices: list[Any], progress: Progress
    ) -> list[list[Any]]:
        """Return a chunk's choices as those of one chunk or more, which have each index once."""

    @abstractmethod
    def _shows(self, choice: Any) -> bool:
        """Say whether a choice of a chunk tells its client anything."""

    @abstractmethod
    def _chunk(self, choices: list[Any], usage: dict[str, Any] | None, derendered: C | None = None) -> C:
        """Return a chunk of ``choices``, with what ``derendered`` has beside them."""


def _asked(request: GenerateRequest, *, streamed: bool) -> GenerateRequest:
    """Return ``request`` for an answer of this kind, whichever its client has named."""
    if request.stream == streamed:
        return request
    params = replace(request.sampling_params, output_kind=DELTAS if streamed else FINAL_ONLY)
    return replace(request, stream=streamed, stream_options=None, sampling_params=params)


async def _read_to_the_end(chunks: AsyncIterator[GenerateChunk]) -> None:
    """Let an engine that has said all end by itself: left before, one behind HTTP is hung up on."""
    with anyio.move_on_after(_LAST_BYTES_S), suppress(EngineError):
        async for _ in chunks:
            pass


@contextmanager
def engine_at_fault() -> Iterator[None]:
    """Blame the engine for output that can't be derendered: its client has asked for nothing wrong."""
    try:
        yield
    except InvalidRequest as error:
        raise EngineError(f"The engine's answer can't be derendered: {error.message}") from error
