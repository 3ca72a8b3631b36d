"""The async face of derendering: generated token ids -> OpenAI answers, off the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, final, overload

import msgspec
from anyio import CapacityLimiter

from .derender import front, stream_wire, typed, wire
from .fanout import fan_out
from .model.loading import Model
from .offload.jobs import Body, Job
from .offload.limits import Limits
from .offload.offloader import Offloader
from .opening import opened
from .policy import Policy
from .protocol.chat import ChatCompletion
from .protocol.completion import Completion
from .protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from .protocol.front import Echo
from .protocol.stream import (
    ChatChunk,
    ChatStreamRequest,
    CompletionChunk,
    CompletionStreamRequest,
    GenerateChunk,
)
from .protocol.tokenize import DetokenizeRequest, DetokenizeResponse
from .streams import Call, DerenderStream, is_small, opened_stream
from .workspace import Workspace

__all__ = ["Derenderer", "open_derenderer"]

_SMALL_CHUNK_BYTES = 4096
"""A chunk of this size, or a chunk's body with its request, costs as much as a hop."""

_CHAT = Job(typed.chat, "derender")
_COMPLETION = Job(typed.completion, "derender")
_DETOKENIZE = Job(typed.detokenize, "derender")
_CHAT_JSON = Job(wire.chat_json, "derender", inline_below=1024)
_COMPLETION_JSON = Job(wire.completion_json, "derender", inline_below=1024)
_DETOKENIZE_JSON = Job(wire.detokenize_json, "derender", inline_below=1024)
_CHAT_CHUNK_JSON = Job(wire.chat_json, "derender", inline_below=_SMALL_CHUNK_BYTES)
_COMPLETION_CHUNK_JSON = Job(wire.completion_json, "derender", inline_below=_SMALL_CHUNK_BYTES)
_CHAT_ANSWER = Job(front.chat_answer, "derender")
_CHAT_ANSWER_JSON = Job(front.chat_answer_json, "derender")
_COMPLETION_ANSWER = Job(front.completion_answer, "derender")
_COMPLETION_ANSWER_JSON = Job(front.completion_answer_json, "derender")
_ECHOED_STREAM = Job(front.echoed_stream, "derender")
_ECHOED_LOGPROBS = Job(front.echoed_logprobs, "derender")
_CHAT_STREAM = Job(typed.chat_stream, "derender")
_CHAT_STEP = Job(typed.chat_step, "derender")
_CHAT_SMALL_STEP = Job(typed.chat_step, "derender", inline_below=1)
_COMPLETION_STREAM = Job(typed.completion_stream, "derender")
_COMPLETION_STEP = Job(typed.completion_step, "derender")
_COMPLETION_SMALL_STEP = Job(typed.completion_step, "derender", inline_below=1)
_CHAT_STREAM_JSON = Job(stream_wire.chat_stream_json, "derender", inline_below=_SMALL_CHUNK_BYTES)
_CHAT_STEP_JSON = Job(stream_wire.chat_step_json, "derender", inline_below=_SMALL_CHUNK_BYTES)
_COMPLETION_STREAM_JSON = Job(stream_wire.completion_stream_json, "derender", inline_below=_SMALL_CHUNK_BYTES)
_COMPLETION_STEP_JSON = Job(stream_wire.completion_step_json, "derender", inline_below=_SMALL_CHUNK_BYTES)


@final
class Derenderer:
    """Derenders the outputs of one model. Made by `open_derenderer`; safe to use from many tasks.

    Every method runs its work in one hop, under the offloader's limits for ``derender``, and has the same
    cancellation: a call that waits for its turn leaves at once and costs nothing; one that runs stops at
    its next checkpoint, once per token with logprobs.

    All raise `Overloaded` when the queue is full.
    """

    def __init__(self, workspace: Workspace, offloader: Offloader) -> None:
        self.model = workspace.model
        self.policy = workspace.policy
        self.offloader = offloader

    async def chat(self, request: DerenderChatRequest) -> ChatCompletion:
        """Return an engine's answer as a chat completion. A choice's ``logprobs`` stay JSON (`msgspec.Raw`).

        Raises: see `trio_render.derender.chat.derender_chat`.
        """
        return await self.offloader.run(_CHAT, (), request)

    async def chat_batch(self, requests: Sequence[DerenderChatRequest]) -> list[ChatCompletion]:
        """Return `chat` of each request, in order. The first failure cancels the others."""
        return await fan_out(self.chat, requests, self._in_flight)

    async def completion(self, request: DerenderCompletionRequest) -> Completion:
        """Return an engine's answers as one completion.

        Raises: see `trio_render.derender.completion.derender_completion`.
        """
        return await self.offloader.run(_COMPLETION, (), request)

    async def completion_batch(self, requests: Sequence[DerenderCompletionRequest]) -> list[Completion]:
        """Return `completion` of each request, in order. The first failure cancels the others."""
        return await fan_out(self.completion, requests, self._in_flight)

    async def detokenize(self, request: DetokenizeRequest) -> DetokenizeResponse:
        """Return the text of token ids, special tokens shown."""
        return await self.offloader.run(_DETOKENIZE, (), request)

    async def chat_json(self, body: Body) -> bytes:
        """Return the JSON answer to a chat derender body, given in chunks as they arrived.

        A streamed chunk's body is one, too; see `trio_render.derender.stream_carried`.
        """
        return await self.offloader.run(_CHAT_CHUNK_JSON if wire.holds_chunk(body) else _CHAT_JSON, body)

    async def completion_json(self, body: Body) -> bytes:
        """Return the JSON answer to a completion derender body, or to a streamed chunk's."""
        job = _COMPLETION_CHUNK_JSON if wire.holds_chunk(body) else _COMPLETION_JSON
        return await self.offloader.run(job, body)

    async def detokenize_json(self, body: Body) -> bytes:
        """Return the JSON answer to a detokenize body."""
        return await self.offloader.run(_DETOKENIZE_JSON, body)

    @overload
    def open_stream(
        self, request: ChatStreamRequest
    ) -> AbstractAsyncContextManager[DerenderStream[GenerateChunk, ChatChunk]]: ...

    @overload
    def open_stream(
        self, request: CompletionStreamRequest
    ) -> AbstractAsyncContextManager[DerenderStream[GenerateChunk, CompletionChunk]]: ...

    def open_stream(
        self, request: ChatStreamRequest | CompletionStreamRequest
    ) -> AbstractAsyncContextManager[DerenderStream[GenerateChunk, Any]]:
        """Open a `DerenderStream` for the length of an ``async with`` block, which starts no task.

        Raises, on entering: see `trio_render.derender.stream_plan.open_chat_stream`.
        """
        if isinstance(request, ChatStreamRequest):
            return self._opened((_CHAT_STREAM, (), (request,)), _CHAT_SMALL_STEP, _CHAT_STEP)
        return self._opened((_COMPLETION_STREAM, (), (request,)), _COMPLETION_SMALL_STEP, _COMPLETION_STEP)

    async def chat_answer(self, request: DerenderChatRequest, echo: Echo | None) -> ChatCompletion:
        """Return `chat` of ``request``, behind ``echo``: what a front end answers."""
        return await self.offloader.run(_CHAT_ANSWER, (), request, echo, admitted=True)

    async def chat_answer_json(self, request: DerenderChatRequest, echo: Echo | None) -> bytes:
        """Return `chat_answer` as JSON."""
        return await self.offloader.run(_CHAT_ANSWER_JSON, (), request, echo, admitted=True)

    async def completion_answer(
        self, request: DerenderCompletionRequest, echoes: list[Echo] | None
    ) -> Completion:
        """Return `completion` of ``request``, each answer behind its echo."""
        return await self.offloader.run(_COMPLETION_ANSWER, (), request, echoes, admitted=True)

    async def completion_answer_json(
        self, request: DerenderCompletionRequest, echoes: list[Echo] | None
    ) -> bytes:
        """Return `completion_answer` as JSON."""
        return await self.offloader.run(_COMPLETION_ANSWER_JSON, (), request, echoes, admitted=True)

    def open_echoed_stream(
        self, request: CompletionStreamRequest, echo: Echo
    ) -> AbstractAsyncContextManager[DerenderStream[GenerateChunk, CompletionChunk]]:
        """Open a completion stream whose first token stands behind ``echo``; see `open_stream`."""
        return self._opened((_ECHOED_STREAM, (), (request, echo)), _COMPLETION_SMALL_STEP, _COMPLETION_STEP)

    async def echoed_logprobs(
        self, request: CompletionStreamRequest, echo: Echo, chunk: GenerateChunk
    ) -> msgspec.Raw:
        """Return the logprobs of such a stream's prompt, which came with its first chunk."""
        return await self.offloader.run(_ECHOED_LOGPROBS, (), request, echo, chunk, admitted=True)

    def _opened(
        self, opening: Call, small: Job[Any], large: Job[Any]
    ) -> AbstractAsyncContextManager[DerenderStream[GenerateChunk, Any]]:
        def call(chunk: GenerateChunk) -> Call:
            return small if is_small(chunk) else large, (), (chunk,)

        return opened_stream(self.offloader, opening, call)

    def open_chat_stream_json(self, body: Body) -> AbstractAsyncContextManager[DerenderStream[Body, bytes]]:
        """Open a chat stream, JSON in and out: that of a `ChatStreamRequest` first, then of chunks."""
        return self._opened_json(_CHAT_STREAM_JSON, body, _CHAT_STEP_JSON)

    def open_completion_stream_json(
        self, body: Body
    ) -> AbstractAsyncContextManager[DerenderStream[Body, bytes]]:
        """Open a completion stream likewise."""
        return self._opened_json(_COMPLETION_STREAM_JSON, body, _COMPLETION_STEP_JSON)

    def _opened_json(
        self, opening: Job[Any], body: Body, step: Job[Any]
    ) -> AbstractAsyncContextManager[DerenderStream[Body, bytes]]:
        return opened_stream(self.offloader, (opening, body, ()), lambda chunk: (step, chunk, ()))

    @property
    def limiter(self) -> CapacityLimiter:
        """The limiter that this work runs under."""
        return self.offloader.limiter("derender")

    @property
    def _in_flight(self) -> int:
        return self.offloader.limit("derender")


@asynccontextmanager
async def open_derenderer(
    model: Model | Workspace | str | Path,
    *,
    policy: Policy | None = None,
    limiter: CapacityLimiter | int = 2,
    offloader: Offloader | None = None,
) -> AsyncIterator[Derenderer]:
    """Open a `Derenderer` for the length of an ``async with`` block. Arguments as for `open_renderer`.

    Raises:
        ModelLoadError: see `open_model`.
    """
    async with opened(model, policy, Limits(derender=limiter), offloader) as (workspace, running):
        yield Derenderer(workspace, running)
