"""Token in, token out: what the renderer hands to an engine and what comes back.

Source: vLLM 0.33 ``/inference/v1/generate``.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .logprobs import GenerateLogprobs
from .sampling import Int64, SamplingParams, StreamOptions

__all__ = ["GenerateBody", "GenerateChoice", "GenerateRequest", "GenerateResponse", "ParseContext"]


class ParseContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the derenderer has to know of the chat request to parse its output."""

    parallel_tool_calls: bool
    include_reasoning: bool
    chat_template_kwargs: dict[str, Any]
    history_tool_call_cnt: int
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One prompt as token ids, ready for an engine. ``token_offsets`` are ``[start, end)`` in characters.

    ``reasoning_ended``: the prompt has ended the answer's reasoning, or nobody wants to see it, so that
    constraints hold from the start.
    """

    request_id: str
    token_ids: list[int]
    sampling_params: SamplingParams
    output_mode: Literal["tokens"]
    stream: bool
    priority: int
    token_offsets: list[tuple[int, int]] | None = None
    model: str | None = None
    stream_options: StreamOptions | None = None
    cache_salt: str | None = None
    return_token_ids: bool | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    parse_context: ParseContext | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, Any] | None = None


class GenerateBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /inference/v1/generate``: a `GenerateRequest` of which most may be left out."""

    token_ids: list[int]
    sampling_params: dict[str, Any] = {}
    request_id: str | None = None
    output_mode: Literal["tokens"] | None = "tokens"
    stream: bool | None = False
    priority: Int64 | None = None
    model: str | None = None
    stream_options: StreamOptions | None = None
    cache_salt: Any = None
    return_token_ids: bool | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, Any] | None = None


class GenerateChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence from the engine. ``stop_reason`` is a token id, a stop string, or nothing."""

    index: int
    token_ids: list[int] | None = None
    finish_reason: str | None = "stop"
    stop_reason: Any = None
    logprobs: GenerateLogprobs | None = None
    routed_experts: Any = None


class GenerateResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer of the engine to one `GenerateRequest`."""

    request_id: str
    choices: list[GenerateChoice]
    output_mode: Literal["tokens"] | None = "tokens"
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[str, dict[str, Any]] | None] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    weight_version: Any = None
    metrics: dict[str, Any] | None = None
