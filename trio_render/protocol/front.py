"""What passes between rendering, an engine and derendering inside one process. Not a wire form."""

from __future__ import annotations

from typing import Any

import msgspec

from .chat import ChatRequest
from .completion import CompletionRequest
from .generate import GenerateRequest

__all__ = ["ChatPrompt", "CompletionPrompts", "Echo"]


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that comes back in front of its answer.

    Attributes:
        text: as it was given, or as it reads where ids were given, or where it was truncated.
        token_ids: for its logprobs.
        alone: nothing was to be generated: the one token of the engine's is thrown away.
    """

    text: str
    token_ids: list[int] = []
    alone: bool = False


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A chat request, and what an engine gets for it."""

    request: ChatRequest
    generate: GenerateRequest
    echo: Echo | None


class CompletionPrompts(msgspec.Struct, frozen=True, kw_only=True):
    """A completion request, and what an engine gets for each of its prompts that has tokens.

    Attributes:
        plan: a `render.completion.CompletionPlan`, for the prompts given as embeddings.
        embeds: their base64 texts.
    """

    request: CompletionRequest
    generate: list[GenerateRequest]
    echoes: list[Echo] | None
    plan: Any
    embeds: list[str]
