"""Bodies of streamed derendering: one chunk of an engine's output, with the state the client carries.

Source: vLLM 0.33. Not served yet; bodies are checked, so that a client learns of its own mistakes first.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .chat import ChatRequest
from .completion import CompletionRequest
from .generate import GenerateChoice
from .sampling import Int64

__all__ = ["DerenderChatChunk", "DerenderCompletionChunk", "GenerateChunk"]


class GenerateChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an engine's streamed answer."""

    request_id: str
    choices: list[GenerateChoice]
    usage: dict[str, Any] | None = None


class _Chunk(msgspec.Struct, frozen=True, kw_only=True):
    generate_chunk: GenerateChunk
    model: str | None = None
    prompt_token_ids: list[int] | None = None
    prompt_tokens: Int64 | None = None
    stream_state: dict[str, Any] | None = None


class DerenderChatChunk(_Chunk, frozen=True, kw_only=True):
    """Streamed body of ``POST /v1/chat/completions/derender``."""

    chat_request: ChatRequest | None = None


class DerenderCompletionChunk(_Chunk, frozen=True, kw_only=True):
    """Streamed body of ``POST /v1/completions/derender``."""

    completion_request: CompletionRequest | None = None
