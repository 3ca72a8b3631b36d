"""The async face of rendering: requests -> token ids, off the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import final

from anyio import CapacityLimiter, to_thread

from .fanout import fan_out
from .model.loading import Model, open_model
from .offload.workers import run_in_thread
from .policy import Policy
from .protocol.chat import ChatRequest
from .protocol.completion import CompletionRequest
from .protocol.generate import GenerateRequest
from .protocol.tokenize import TokenizeChatRequest, TokenizeRequest, TokenizeResponse
from .render import wire
from .render.chat import render_chat
from .render.completion import plan_completion
from .render.tokenize import tokenize

__all__ = ["Renderer", "open_renderer"]


@final
class Renderer:
    """Renders requests of one model. Made by `open_renderer`; safe to use from many tasks.

    Every method runs its work in one hop to a worker thread under ``limiter`` (a large batch of prompts in
    several), and has the same cancellation: a call that waits for its turn leaves at once and costs
    nothing; one that runs stops at its next checkpoint, within about a millisecond of its own work. One
    encode of a long text is a single call that can't be cut up, and is waited for.
    """

    def __init__(self, model: Model, policy: Policy, limiter: CapacityLimiter) -> None:
        self.model = model
        self.policy = policy
        self.limiter = limiter

    async def chat(self, request: ChatRequest) -> GenerateRequest:
        """Return a chat request as a prompt for an engine.

        Raises: see `trio_render.render.chat.render_chat`.
        """
        return await run_in_thread(self._chat, self.limiter, request)

    async def chat_batch(self, requests: Sequence[ChatRequest]) -> list[GenerateRequest]:
        """Return `chat` of each request, in order. The first failure cancels the others."""
        return await fan_out(self.chat, requests, self._in_flight)

    async def completion(self, request: CompletionRequest) -> list[GenerateRequest]:
        """Return a completion request as prompts for an engine, one per prompt, in order.

        Raises: see `trio_render.render.completion.plan_completion`.
        """
        return await run_in_thread(self._completion, self.limiter, request)

    async def completion_batch(self, requests: Sequence[CompletionRequest]) -> list[list[GenerateRequest]]:
        """Return `completion` of each request, in order. The first failure cancels the others."""
        return await fan_out(self.completion, requests, self._in_flight)

    async def tokenize(self, request: TokenizeRequest | TokenizeChatRequest) -> TokenizeResponse:
        """Return the ids of a text or a chat. Raises: see `trio_render.render.tokenize.tokenize`."""
        return await run_in_thread(self._tokenize, self.limiter, request)

    async def chat_json(self, body: Sequence[bytes], request_id: str | None = None) -> bytes:
        """Return the JSON answer to a chat render body, given in chunks as they arrived.

        Args:
            request_id: the caller's own id for the request (from a header); it wins over the body's.

        Raises: `RenderError`.
        """
        return await run_in_thread(self._chat_json, self.limiter, body, request_id)

    async def completion_json(self, body: Sequence[bytes], request_id: str | None = None) -> bytes:
        """Return the JSON answer (a list, one element per prompt) to a completion render body.

        A batch that costs more than some milliseconds fans out under the limiter.
        """
        start = await run_in_thread(self._completion_start, self.limiter, body, request_id)
        if not start.groups:
            return b"[" + start.done + b"]"

        async def group(prompts: range) -> bytes:
            return await run_in_thread(
                lambda checkpoint: wire.completion_json(start.plan, prompts, checkpoint), self.limiter
            )

        parts = await fan_out(group, start.groups, self._in_flight)
        return b"[" + b",".join([start.done, *parts]) + b"]"

    async def tokenize_json(self, body: Sequence[bytes]) -> bytes:
        """Return the JSON answer to a tokenize body."""
        return await run_in_thread(self._tokenize_json, self.limiter, body)

    @property
    def _in_flight(self) -> int:
        return int(min(self.limiter.total_tokens, 1024))

    def _chat(self, checkpoint: Callable[[], None], request: ChatRequest) -> GenerateRequest:
        return render_chat(self.model, self.policy, request, checkpoint)

    def _completion(
        self, checkpoint: Callable[[], None], request: CompletionRequest
    ) -> list[GenerateRequest]:
        plan = plan_completion(self.model, self.policy, request)
        rendered = []
        for index in range(len(plan.prompts)):
            checkpoint()
            rendered.append(plan.render(index))
        return rendered

    def _tokenize(
        self, checkpoint: Callable[[], None], request: TokenizeRequest | TokenizeChatRequest
    ) -> TokenizeResponse:
        return tokenize(self.model, self.policy, request, checkpoint)

    def _chat_json(self, checkpoint: Callable[[], None], body: Sequence[bytes], base_id: str | None) -> bytes:
        return wire.chat_json(self.model, self.policy, b"".join(body), base_id, checkpoint)

    def _completion_start(
        self, checkpoint: Callable[[], None], body: Sequence[bytes], base_id: str | None
    ) -> wire.CompletionStart:
        return wire.completion_start(self.model, self.policy, b"".join(body), base_id, checkpoint)

    def _tokenize_json(self, checkpoint: Callable[[], None], body: Sequence[bytes]) -> bytes:
        return wire.tokenize_json(self.model, self.policy, b"".join(body), checkpoint)


@asynccontextmanager
async def open_renderer(
    model: Model | str | Path, *, policy: Policy | None = None, limiter: CapacityLimiter | int = 2
) -> AsyncIterator[Renderer]:
    """Open a `Renderer` for the length of an ``async with`` block.

    Args:
        model: an open `Model` (share one between a renderer and a derenderer), or what `open_model` takes;
            it is then opened in a worker thread.
        policy: bounds and switches; default `Policy()`.
        limiter: your own `anyio.CapacityLimiter`, which others may share, or a number of threads for one
            that belongs to this renderer. Rendering is partly Python, which gains nothing from many.

    Raises:
        ModelLoadError: see `open_model`.
    """
    if not isinstance(model, Model):
        model = await to_thread.run_sync(open_model, model)
    if isinstance(limiter, int):
        limiter = CapacityLimiter(limiter)
    yield Renderer(model, policy or Policy(), limiter)
