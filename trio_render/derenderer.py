"""The async face of derendering: generated token ids -> OpenAI answers, off the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import final

from anyio import CapacityLimiter

from .derender import typed, wire
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
from .protocol.tokenize import DetokenizeRequest, DetokenizeResponse
from .workspace import Workspace

__all__ = ["Derenderer", "open_derenderer"]

_CHAT = Job(typed.chat, "derender")
_COMPLETION = Job(typed.completion, "derender")
_DETOKENIZE = Job(typed.detokenize, "derender")
_CHAT_JSON = Job(wire.chat_json, "derender", inline_below=1024)
_COMPLETION_JSON = Job(wire.completion_json, "derender", inline_below=1024)
_DETOKENIZE_JSON = Job(wire.detokenize_json, "derender", inline_below=1024)


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
        """Return the JSON answer to a chat derender body, given in chunks as they arrived."""
        return await self.offloader.run(_CHAT_JSON, body)

    async def completion_json(self, body: Body) -> bytes:
        """Return the JSON answer to a completion derender body."""
        return await self.offloader.run(_COMPLETION_JSON, body)

    async def detokenize_json(self, body: Body) -> bytes:
        """Return the JSON answer to a detokenize body."""
        return await self.offloader.run(_DETOKENIZE_JSON, body)

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
