"""A completion's answer."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, final

from msgspec.structs import replace

from ..protocol.completion import Completion, CompletionRequest
from ..protocol.derender import DerenderCompletionRequest
from ..protocol.front import Echo
from ..protocol.stream import (
    CompletionChunk,
    CompletionChunkChoice,
    CompletionStreamRequest,
    GenerateChunk,
)
from ..streams import DerenderStream
from .started import Progress, Prompt, Started, engine_at_fault

__all__ = ["StartedCompletion"]


@final
class StartedCompletion(Started[CompletionRequest, CompletionChunk]):
    """A completion request, rendered."""

    async def answer(self) -> Completion:
        """Generate, and return the whole answer."""
        body = await self._body()
        with engine_at_fault():
            return await self._derenderer.completion_answer(body, self._echoes())

    async def answer_json(self) -> bytes:
        """Return `answer` as JSON."""
        body = await self._body()
        with engine_at_fault():
            return await self._derenderer.completion_answer_json(body, self._echoes())

    async def _body(self) -> DerenderCompletionRequest:
        return DerenderCompletionRequest(
            generate_responses=await self._responses(),
            completion_request=self.request,
            prompt_token_ids=[prompt.generate.token_ids for prompt in self._prompts],
            prompt_tokens=[prompt.n_tokens for prompt in self._prompts],
        )

    def _echoes(self) -> list[Echo] | None:
        echoes = [prompt.echo for prompt in self._prompts if prompt.echo is not None]
        return echoes or None

    def _stream_request(self, prompt: Prompt) -> CompletionStreamRequest:
        return CompletionStreamRequest(
            completion_request=self.request, prompt_token_ids=prompt.generate.token_ids
        )

    def _open_prompt_stream(
        self, prompt: Prompt
    ) -> AbstractAsyncContextManager[DerenderStream[GenerateChunk, CompletionChunk]]:
        request = self._stream_request(prompt)
        if prompt.echo is None:
            return self._derenderer.open_stream(request)
        return self._derenderer.open_echoed_stream(request, prompt.echo)

    def _begins(self, chunk: GenerateChunk, progress: Progress) -> bool:
        return any(choice.index not in progress.shown for choice in chunk.choices)

    async def _parts(
        self, prompt: Prompt, chunk: GenerateChunk, choices: list[CompletionChunkChoice], progress: Progress
    ) -> list[list[CompletionChunkChoice]]:
        echo = prompt.echo
        choices = [
            replace(choice, prompt_token_ids=None) if choice.index in progress.shown else choice
            for choice in choices
        ]
        if echo is None:
            return [choices]
        if self.request.logprobs is not None and not progress.shown:
            request = self._stream_request(prompt)
            progress.echoed = await self._derenderer.echoed_logprobs(request, echo, chunk)
        echoed = [
            CompletionChunkChoice(
                index=choice.index, text=echo.text, finish_reason=None, logprobs=progress.echoed
            )
            for choice in choices
            if choice.index not in progress.shown
        ]
        if echo.alone:
            choices = [replace(choice, text="", logprobs=None) for choice in choices]
        return [echoed, choices]

    def _chunk(
        self,
        choices: list[CompletionChunkChoice],
        usage: dict[str, Any] | None,
        derendered: CompletionChunk | None = None,
    ) -> CompletionChunk:
        if derendered is not None:
            return replace(derendered, created=self._created, choices=choices, usage=usage)
        return CompletionChunk(
            id=self.id,
            object="text_completion",
            created=self._created,
            model=self._derenderer.policy.answer_name(self._derenderer.model.name),
            choices=choices,
            usage=usage,
        )

    def _shows(self, choice: CompletionChunkChoice) -> bool:
        return (
            bool(choice.text)
            or choice.finish_reason is not None
            or choice.logprobs is not None
            or bool(choice.token_ids)
            or choice.prompt_token_ids is not None
        )
