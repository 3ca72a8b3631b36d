"""The async face of derendering: generated token ids -> OpenAI answers, off the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import final

from anyio import CapacityLimiter, to_thread

from .derender import wire
from .derender.chat import derender_chat
from .derender.completion import derender_completion
from .derender.detokenize_ids import detokenize_ids
from .derender.logprobs import FragmentCache
from .fanout import fan_out
from .model.loading import Model, open_model
from .offload.workers import run_in_thread
from .policy import Policy
from .protocol.chat import ChatCompletion
from .protocol.completion import Completion
from .protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from .protocol.tokenize import DetokenizeRequest, DetokenizeResponse

__all__ = ["Derenderer", "open_derenderer"]


@final
class Derenderer:
    """Derenders the outputs of one model. Made by `open_derenderer`; safe to use from many tasks.

    Every method runs its work in one hop to a worker thread under ``limiter``, and has the same
    cancellation: a call that waits for its turn leaves at once and costs nothing; one that runs stops at
    its next checkpoint, once per token with logprobs.
    """

    def __init__(self, model: Model, policy: Policy, limiter: CapacityLimiter) -> None:
        self.model = model
        self.policy = policy
        self.limiter = limiter
        self._cache = FragmentCache(model)

    async def chat(self, request: DerenderChatRequest) -> ChatCompletion:
        """Return an engine's answer as a chat completion. A choice's ``logprobs`` stay JSON (`msgspec.Raw`).

        Raises: see `trio_render.derender.chat.derender_chat`.
        """
        return await run_in_thread(self._chat, self.limiter, request)

    async def chat_batch(self, requests: Sequence[DerenderChatRequest]) -> list[ChatCompletion]:
        """Return `chat` of each request, in order. The first failure cancels the others."""
        return await fan_out(self.chat, requests, self._in_flight)

    async def completion(self, request: DerenderCompletionRequest) -> Completion:
        """Return an engine's answers as one completion.

        Raises: see `trio_render.derender.completion.derender_completion`.
        """
        return await run_in_thread(self._completion, self.limiter, request)

    async def completion_batch(self, requests: Sequence[DerenderCompletionRequest]) -> list[Completion]:
        """Return `completion` of each request, in order. The first failure cancels the others."""
        return await fan_out(self.completion, requests, self._in_flight)

    async def detokenize(self, request: DetokenizeRequest) -> DetokenizeResponse:
        """Return the text of token ids, special tokens shown."""
        return await run_in_thread(self._detokenize, self.limiter, request)

    async def chat_json(self, body: Sequence[bytes]) -> bytes:
        """Return the JSON answer to a chat derender body, given in chunks as they arrived."""
        return await run_in_thread(self._chat_json, self.limiter, body)

    async def completion_json(self, body: Sequence[bytes]) -> bytes:
        """Return the JSON answer to a completion derender body."""
        return await run_in_thread(self._completion_json, self.limiter, body)

    async def detokenize_json(self, body: Sequence[bytes]) -> bytes:
        """Return the JSON answer to a detokenize body."""
        return await run_in_thread(self._detokenize_json, self.limiter, body)

    @property
    def _in_flight(self) -> int:
        return int(min(self.limiter.total_tokens, 1024))

    def _chat(self, checkpoint: Callable[[], None], request: DerenderChatRequest) -> ChatCompletion:
        return derender_chat(self.model, self.policy, self._cache, request, checkpoint)

    def _completion(self, checkpoint: Callable[[], None], request: DerenderCompletionRequest) -> Completion:
        return derender_completion(self.model, self.policy, request, checkpoint)

    def _detokenize(self, checkpoint: Callable[[], None], request: DetokenizeRequest) -> DetokenizeResponse:
        checkpoint()
        return detokenize_ids(self.model, self.policy, request)

    def _chat_json(self, checkpoint: Callable[[], None], body: Sequence[bytes]) -> bytes:
        return wire.chat_json(self.model, self.policy, self._cache, b"".join(body), checkpoint)

    def _completion_json(self, checkpoint: Callable[[], None], body: Sequence[bytes]) -> bytes:
        return wire.completion_json(self.model, self.policy, b"".join(body), checkpoint)

    def _detokenize_json(self, checkpoint: Callable[[], None], body: Sequence[bytes]) -> bytes:
        checkpoint()
        return wire.detokenize_json(self.model, self.policy, b"".join(body))


@asynccontextmanager
async def open_derenderer(
    model: Model | str | Path, *, policy: Policy | None = None, limiter: CapacityLimiter | int = 2
) -> AsyncIterator[Derenderer]:
    """Open a `Derenderer` for the length of an ``async with`` block. Arguments as for `open_renderer`.

    Raises:
        ModelLoadError: see `open_model`.
    """
    if not isinstance(model, Model):
        model = await to_thread.run_sync(open_model, model)
    if isinstance(limiter, int):
        limiter = CapacityLimiter(limiter)
    yield Derenderer(model, policy or Policy(), limiter)
