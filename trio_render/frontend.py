"""The front end: render -> engine -> derender. One request is one scope, whose end stops all three."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from .answers.chat import StartedChat
from .answers.completion import StartedCompletion
from .answers.started import Prompt
from .answers.tokens import StartedTokens
from .derenderer import Derenderer
from .engine.base import Engine
from .errors import InvalidRequest
from .offload.jobs import Body
from .protocol.chat import ChatCompletion, ChatRequest
from .protocol.completion import Completion, CompletionRequest
from .protocol.front import CompletionPrompts
from .render.completion import render_embeds
from .renderer import Renderer

__all__ = ["Frontend"]


@final
class Frontend:
    """Answers requests of one model. Safe to use from many tasks of one event loop.

    What a request costs ends with its call, or with the block of its stream: cancelled, it is gone from
    renderer, engine and derenderer alike. All methods raise what `Renderer`, `Derenderer` and
    `Engine.generate` raise; an engine whose output can't be derendered is at fault itself (`EngineError`).
    """

    def __init__(self, renderer: Renderer, derenderer: Derenderer, engine: Engine) -> None:
        self.renderer = renderer
        self.derenderer = derenderer
        self.engine = engine

    async def chat(self, request: ChatRequest) -> ChatCompletion:
        """Return the answer to a chat request. Its ``stream`` is not looked at."""
        return await (await self.start_chat((), request=request)).answer()

    async def completion(self, request: CompletionRequest) -> Completion:
        """Return the answer to a completion request. Its ``stream`` is not looked at."""
        return await (await self.start_completion((), request=request)).answer()

    async def start_chat(
        self, body: Body, request_id: str | None = None, request: ChatRequest | None = None
    ) -> StartedChat:
        """Check and render a chat request. Nothing is generated before its answer is asked for.

        Args:
            body: its JSON, in chunks as they arrived.
            request_id: the caller's own id for the request (from a header, say).
            request: instead of ``body``.
        """
        given = await self.renderer.chat_prompt(body, request_id, request)
        prompt = Prompt(given.generate, len(given.generate.token_ids), echo=given.echo)
        answer_id = given.generate.request_id
        return StartedChat(self.derenderer, self.engine, given.request, [prompt], answer_id)

    async def start_completion(
        self, body: Body, request_id: str | None = None, request: CompletionRequest | None = None
    ) -> StartedCompletion:
        """Check and render a completion request. Its embeddings come before its other prompts.

        Arguments as for `start_chat`.

        Raises:
            InvalidRequest: (``prompt_embeds``) an engine that takes none.
        """
        given, texts = await self.renderer.completion_prompts(body, request_id, request)
        try:
            prompts = await self._embeds(given, texts) if texts else []
        finally:
            for text in texts:
                if isinstance(text, list):
                    # An error's traceback must not keep the body's chunks: its owner frees them as it likes.
                    text.clear()
        for place, generate in enumerate(given.generate):
            echo = None if given.echoes is None else given.echoes[place]
            prompts.append(Prompt(generate, len(generate.token_ids), echo=echo))
        answer_id = given.plan.base_id
        return StartedCompletion(self.derenderer, self.engine, given.request, prompts, answer_id)

    async def start_tokens(self, body: Body, request_id: str | None = None) -> StartedTokens:
        """Check a token-in request. Arguments as for `start_chat`."""
        return StartedTokens(self.engine, await self.renderer.generate_request(body, request_id))

    async def _embeds(self, given: CompletionPrompts, texts: Sequence[str | Body]) -> list[Prompt]:
        if not self.engine.takes_embeds:
            raise InvalidRequest("This server's engine takes no prompt_embeds.", "prompt_embeds")
        model = self.renderer.model
        prompts = []
        for index, tensor in enumerate(await self.renderer.prompt_embeds_batch(texts)):
            rows = tensor.shape[0]
            prompts.append(Prompt(render_embeds(model, given.plan, index, rows), rows, tensor))
        return prompts
