"""Bodies and answers of ``/tokenize``, ``/detokenize`` and ``/v1/models``."""

from __future__ import annotations

from typing import Any

import msgspec

from .chat import ChatRequest

__all__ = [
    "DetokenizeRequest",
    "DetokenizeResponse",
    "ModelCard",
    "ModelList",
    "TokenizeChatRequest",
    "TokenizeRequest",
    "TokenizeResponse",
]


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /tokenize`` for a text."""

    prompt: str
    model: str | None = None
    add_special_tokens: bool | None = True
    return_token_strs: bool | None = False


class TokenizeChatRequest(ChatRequest, frozen=True, kw_only=True):
    """Body of ``POST /tokenize`` for a chat: fields that decide its prompt count, the others don't."""

    return_token_strs: bool | None = False


class TokenizeResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``token_strs`` are vocabulary pieces (``Ġworld``, ``▁world``), not texts."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /detokenize``."""

    tokens: list[int]
    model: str | None = None


class DetokenizeResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The text of the tokens, special ones included."""

    prompt: str


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One served name."""

    id: str
    created: int
    root: str
    max_model_len: int
    object: str = "model"
    owned_by: str = "trio_render"
    parent: str | None = None
    permission: list[Any] = []


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of ``GET /v1/models``."""

    data: list[ModelCard]
    object: str = "list"
