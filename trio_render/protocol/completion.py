"""Completion requests and answers. Source: OpenAI's completions, with vLLM 0.33's extensions."""

from __future__ import annotations

from typing import Any

import msgspec

from .sampling import SamplingFields

__all__ = ["Completion", "CompletionChoice", "CompletionRequest"]


class CompletionRequest(SamplingFields, frozen=True, kw_only=True):
    """Body of ``POST /v1/completions/render``.

    ``prompt`` is a text, a list of texts, a list of token ids, or a list of such lists.
    """

    prompt: Any = None
    prompt_embeds: Any = None
    logprobs: Any = None
    suffix: Any = None
    add_special_tokens: bool | None = True
    best_of: int | None = None


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One choice of a completion answer. ``logprobs``: see `protocol.logprobs.CompletionLogprobs`."""

    index: int
    text: str
    finish_reason: str | None
    logprobs: msgspec.Raw | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    routed_experts: Any = None


class Completion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of ``POST /v1/completions/derender``."""

    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: dict[str, Any]
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    weight_version: Any = None
    metrics: dict[str, Any] | None = None
