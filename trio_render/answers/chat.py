"""A chat's answer."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, final

from msgspec.structs import replace

from ..protocol.chat import ChatCompletion, ChatRequest
from ..protocol.derender import DerenderChatRequest
from ..protocol.stream import ChatChunk, ChatChunkChoice, ChatDelta, ChatStreamRequest, GenerateChunk
from ..streams import DerenderStream
from .started import Progress, Prompt, Started, engine_at_fault

__all__ = ["StartedChat"]

_NOTHING = ChatDelta()


@final
class StartedChat(Started[ChatRequest, ChatChunk]):
    """A chat request, rendered."""

    async def answer(self) -> ChatCompletion:
        """Generate, and return the whole answer."""
        body = await self._body()
        with engine_at_fault():
            return await self._derenderer.chat_answer(body, self._prompts[0].echo)

    async def answer_json(self) -> bytes:
        """Return `answer` as JSON."""
        body = await self._body()
        with engine_at_fault():
            return await self._derenderer.chat_answer_json(body, self._prompts[0].echo)

    async def _body(self) -> DerenderChatRequest:
        [response] = await self._responses()
        [prompt] = self._prompts
        return DerenderChatRequest(
            generate_response=response,
            chat_request=self.request,
            prompt_token_ids=prompt.generate.token_ids,
            prompt_tokens=prompt.n_tokens,
        )

    def _open_prompt_stream(
        self, prompt: Prompt
    ) -> AbstractAsyncContextManager[DerenderStream[GenerateChunk, ChatChunk]]:
        request = ChatStreamRequest(chat_request=self.request, prompt_token_ids=prompt.generate.token_ids)
        return self._derenderer.open_stream(request)

    def _begins(self, chunk: GenerateChunk, progress: Progress) -> bool:
        return not progress.shown

    async def _parts(
        self, prompt: Prompt, chunk: GenerateChunk, choices: list[ChatChunkChoice], progress: Progress
    ) -> list[list[ChatChunkChoice]]:
        echo = prompt.echo
        if echo is None:
            return [choices]
        echoed = [
            choice
            if choice.index in progress.shown
            else replace(
                choice, delta=replace(choice.delta, content=echo.text + (choice.delta.content or ""))
            )
            for choice in choices
        ]
        return [echoed]

    def _chunk(
        self,
        choices: list[ChatChunkChoice],
        usage: dict[str, Any] | None,
        derendered: ChatChunk | None = None,
    ) -> ChatChunk:
        if derendered is not None:
            return replace(derendered, created=self._created, choices=choices, usage=usage)
        return ChatChunk(
            id=self.id,
            object="chat.completion.chunk",
            created=self._created,
            model=self._derenderer.policy.answer_name(self._derenderer.model.name),
            choices=choices,
            usage=usage,
        )

    def _shows(self, choice: ChatChunkChoice) -> bool:
        return (
            choice.delta != _NOTHING
            or choice.finish_reason is not None
            or choice.logprobs is not None
            or bool(choice.token_ids)
        )
