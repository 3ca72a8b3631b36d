"""The async face of rendering: requests -> token ids, off the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar, final

from anyio import CapacityLimiter

from .errors import InvalidRequest, MalformedRequest
from .fanout import fan_out
from .model.loading import Model
from .offload.jobs import Body, Job
from .offload.limits import Limits
from .offload.offloader import Offloader
from .opening import opened
from .policy import Policy
from .protocol.chat import ChatRequest
from .protocol.completion import CompletionRequest
from .protocol.front import ChatPrompt, CompletionPrompts
from .protocol.generate import GenerateRequest
from .protocol.tokenize import TokenizeChatRequest, TokenizeRequest, TokenizeResponse
from .render import front, typed, wire
from .render.completion import CompletionPlan
from .render.embeds.lifting import LIFT_FROM_BYTES, lift_embeds
from .render.generate import generate_request
from .render.prompt_embeds import check_prompt_embeds, prompt_embeds, token_ids_only
from .workspace import Workspace

if TYPE_CHECKING:
    import torch

__all__ = ["Renderer", "open_renderer"]

S = TypeVar("S", wire.CompletionStart, CompletionPrompts)

_CHAT = Job(typed.chat, "render")
_COMPLETION = Job(typed.completion, "render", keeps_gil=False)
_TOKENIZE = Job(typed.tokenize_request, "render", keeps_gil=False)
# How small is smaller than a hop: `python -m bench hops`. What a body can ask for at worst counts, too: 128
# bytes hold some 30 prompts.
_CHAT_JSON = Job(wire.chat_json, "render", inline_below=1024)
_COMPLETION_START = Job(wire.completion_start, "render", keeps_gil=False, inline_below=128)
_COMPLETION_JSON = Job(wire.completion_json, "render", keeps_gil=False)
_CHAT_PROMPT = Job(front.chat_prompt, "render")
_COMPLETION_PROMPTS = Job(front.completion_prompts, "render", keeps_gil=False)
_GENERATE_REQUEST = Job(generate_request, "render", keeps_gil=False, inline_below=4096)
_LIFT_EMBEDS = Job(lift_embeds, "render", stays=True)
_PROMPT_EMBEDS = Job(prompt_embeds, "prompt_embeds", stays=True)
_CHECK_PROMPT_EMBEDS = Job(check_prompt_embeds, "prompt_embeds")
_TOKENIZE_JSON = Job(wire.tokenize_json, "render", keeps_gil=False, inline_below=1024)


@final
class Renderer:
    """Renders requests of one model. Made by `open_renderer`; safe to use from many tasks.

    Every method runs its work in one hop (a large batch of prompts in several), under the offloader's
    limits for ``render``, and has the same cancellation: a call that waits for its turn leaves at once
    and costs nothing; one that runs stops at its next checkpoint, within about a millisecond of its own
    work. One encode of a long text is a single call that can't be cut up, and is waited for.

    All raise `Overloaded` when the queue is full.
    """

    def __init__(self, workspace: Workspace, offloader: Offloader) -> None:
        self.model = workspace.model
        self.policy = workspace.policy
        self.offloader = offloader
        # A template of the request's own can make any work of a small body.
        trusts = self.policy.trust_request_chat_template
        self._chat_json = replace(_CHAT_JSON, inline_below=0) if trusts else _CHAT_JSON
        self._tokenize_json = replace(_TOKENIZE_JSON, inline_below=0) if trusts else _TOKENIZE_JSON

    async def chat(self, request: ChatRequest) -> GenerateRequest:
        """Return a chat request as a prompt for an engine.

        Raises: see `trio_render.render.chat.render_chat`.
        """
        return await self.offloader.run(_CHAT, (), request)

    async def chat_batch(self, requests: Sequence[ChatRequest]) -> list[GenerateRequest]:
        """Return `chat` of each request, in order. The first failure cancels the others."""
        return await fan_out(self.chat, requests, self._in_flight)

    async def completion(self, request: CompletionRequest) -> list[GenerateRequest]:
        """Return a completion request as prompts for an engine, one per prompt, in order.

        Raises: see `trio_render.render.completion.plan_completion` and `render_prompt`; `InvalidRequest` for
        prompts given as embeddings, which see `prompt_embeds`.
        """
        result = await self.offloader.run(_COMPLETION, (), request)
        if result.embeds:
            await self._refuse_embeds(result.embeds)
        return result.rendered

    async def completion_batch(self, requests: Sequence[CompletionRequest]) -> list[list[GenerateRequest]]:
        """Return `completion` of each request, in order. The first failure cancels the others."""
        return await fan_out(self.completion, requests, self._in_flight)

    async def prompt_embeds(self, text: str | Body) -> torch.Tensor:
        """Return a prompt given as embeddings: contiguous, (rows, hidden size), in the model's dtype.

        Runs under the limits for ``prompt_embeds``, in a thread of this process with the ``process`` backend
        as well.

        Args:
            text: base64, as a text or as ASCII in chunks.

        Raises: `InvalidRequest`; see `trio_render.render.prompt_embeds.read_prompt_embeds`.
        """
        if not self.policy.enable_prompt_embeds:
            raise InvalidRequest("prompt_embeds are not enabled.", "prompt_embeds")
        return await self.offloader.run(_PROMPT_EMBEDS, *_embeds_arguments(text))

    async def prompt_embeds_batch(self, texts: Sequence[str | Body]) -> list[torch.Tensor]:
        """Return `prompt_embeds` of each text, in order. The first failure cancels the others."""
        return await fan_out(self.prompt_embeds, texts, self.offloader.limit("prompt_embeds"))

    async def tokenize(self, request: TokenizeRequest | TokenizeChatRequest) -> TokenizeResponse:
        """Return the ids of a text or a chat. Raises: see `trio_render.render.tokenize.tokenize`."""
        return await self.offloader.run(_TOKENIZE, (), request)

    async def chat_json(self, body: Body, request_id: str | None = None) -> bytes:
        """Return the JSON answer to a chat render body, given in chunks as they arrived.

        Args:
            request_id: the caller's own id for the request (from a header); it wins over the body's.

        Raises: `RenderError`.
        """
        return await self.offloader.run(self._chat_json, body, request_id)

    async def completion_json(self, body: Body, request_id: str | None = None) -> bytes:
        """Return the JSON answer (a list, one element per prompt) to a completion render body.

        A batch that costs more than some milliseconds fans out under the limiter. Prompts given as
        embeddings are checked, each in a job of its own, and then refused.
        """
        start, embeds = await self._with_embeds_lifted(_COMPLETION_START, body, request_id)
        try:
            if embeds:
                await self._refuse_embeds(embeds)
        finally:
            for text in embeds:
                if isinstance(text, list):
                    # The error's traceback must not keep the body's chunks: its owner frees them as it likes.
                    text.clear()

        async def group(plan: CompletionPlan) -> bytes:
            return await self.offloader.run(_COMPLETION_JSON, (), plan, admitted=True)

        parts = await fan_out(group, start.left, self._in_flight) if start.left else []
        return b"[" + b",".join([start.done, *parts]) + b"]"

    async def tokenize_json(self, body: Body) -> bytes:
        """Return the JSON answer to a tokenize body."""
        return await self.offloader.run(self._tokenize_json, body)

    async def generate_request(self, body: Body, request_id: str | None = None) -> GenerateRequest:
        """Return a token-in request's body as an engine wants it. ``request_id`` as for `chat_json`."""
        return await self.offloader.run(_GENERATE_REQUEST, body, request_id)

    async def chat_prompt(
        self, body: Body, request_id: str | None = None, request: ChatRequest | None = None
    ) -> ChatPrompt:
        """Return a chat request with its prompt, for a front end.

        Args:
            request_id: as for `chat_json`.
            request: instead of ``body``.
        """
        return await self.offloader.run(_CHAT_PROMPT, body, request_id, request)

    async def completion_prompts(
        self, body: Body, request_id: str | None = None, request: CompletionRequest | None = None
    ) -> tuple[CompletionPrompts, Sequence[str | Body]]:
        """Return a completion request with its prompts, and the texts of those given as embeddings.

        Arguments as for `chat_prompt`.
        """
        if request is None:
            return await self._with_embeds_lifted(_COMPLETION_PROMPTS, body, request_id)
        prompts = await self.offloader.run(_COMPLETION_PROMPTS, (), request_id, request)
        return prompts, prompts.embeds

    async def _with_embeds_lifted(
        self, job: Job[S], body: Body, request_id: str | None
    ) -> tuple[S, Sequence[str | Body]]:
        run = self.offloader.run
        is_large = self.policy.enable_prompt_embeds and sum(map(len, body)) >= LIFT_FROM_BYTES
        lifted = await run(_LIFT_EMBEDS, body) if is_large else None
        if lifted is not None:
            # A malformed body is decoded whole, for an error that names the right place in it.
            with suppress(MalformedRequest):
                start = await run(job, lifted.body, request_id, admitted=True)
                embeds = lifted.put_back(start.embeds)
                if embeds is not None:
                    return start, embeds
        start = await run(job, body, request_id, admitted=is_large)
        return start, start.embeds

    async def _refuse_embeds(self, texts: Sequence[str | Body]) -> NoReturn:
        async def check(text: str | Body) -> None:
            await self.offloader.run(_CHECK_PROMPT_EMBEDS, *_embeds_arguments(text), admitted=True)

        await fan_out(check, texts, self.offloader.limit("prompt_embeds"))
        raise token_ids_only()

    @property
    def limiter(self) -> CapacityLimiter:
        """The limiter that this work runs under."""
        return self.offloader.limiter("render")

    @property
    def _in_flight(self) -> int:
        return self.offloader.limit("render")


def _embeds_arguments(text: str | Body) -> tuple[Body, str | None]:
    return ((), text) if isinstance(text, str) else (text, None)


@asynccontextmanager
async def open_renderer(
    model: Model | Workspace | str | Path,
    *,
    policy: Policy | None = None,
    limiter: CapacityLimiter | int = 2,
    offloader: Offloader | None = None,
) -> AsyncIterator[Renderer]:
    """Open a `Renderer` for the length of an ``async with`` block.

    Args:
        model: an open `Model` or `Workspace` (share one between a renderer and a derenderer), or what
            `open_model` takes; it is then opened in a worker thread.
        policy: bounds and switches; default `Policy()`. A `Workspace` has its own.
        limiter: your own `anyio.CapacityLimiter`, which others may share, or a number of threads for one
            that belongs to this renderer. Rendering is partly Python, which gains nothing from many.
        offloader: an open offloader, shared with others, instead of one in threads of this renderer's own
            under ``limiter``.

    Raises:
        ModelLoadError: see `open_model`.
    """
    async with opened(model, policy, Limits(render=limiter), offloader) as (workspace, running):
        yield Renderer(workspace, running)
