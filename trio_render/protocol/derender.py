"""Bodies of the derender endpoints. Source: vLLM 0.33 ``entrypoints/scale_out/derender``."""

from __future__ import annotations

import msgspec

from .chat import ChatRequest
from .completion import CompletionRequest
from .generate import GenerateResponse
from .sampling import Int64

__all__ = ["DerenderChatRequest", "DerenderCompletionRequest"]


class DerenderChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /v1/chat/completions/derender``.

    ``chat_request`` is the request that was rendered (its stop conditions, logprobs and special-token
    switches matter); ``prompt_token_ids`` is its prompt or the prompt's tail; ``prompt_tokens`` is the
    count that goes into ``usage``.
    """

    generate_response: GenerateResponse
    model: str | None = None
    chat_request: ChatRequest | None = None
    prompt_token_ids: list[int] | None = None
    prompt_tokens: Int64 | None = None
    stream: bool | None = False


class DerenderCompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /v1/completions/derender``: one response, prompt and count per prompt of the batch."""

    generate_responses: list[GenerateResponse]
    model: str | None = None
    completion_request: CompletionRequest | None = None
    prompt_token_ids: list[list[int]] | None = None
    prompt_tokens: list[Int64] | None = None
    stream: bool | None = False
