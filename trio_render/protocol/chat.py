"""Chat requests and answers. Source: OpenAI's chat completions, with vLLM 0.33's extensions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from .sampling import Int64, SamplingFields
from .tools import Tool

__all__ = ["ChatChoice", "ChatCompletion", "ChatMessage", "ChatRequest"]


class ChatRequest(SamplingFields, frozen=True, kw_only=True):
    """Body of ``POST /v1/chat/completions/render``. ``messages`` keep their own keys: templates read them."""

    messages: list[dict[str, Any]]
    tools: list[Tool] | None = None
    tool_choice: Any | UnsetType = UNSET
    parallel_tool_calls: bool | None = True
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    include_reasoning: bool | None = True
    media_io_kwargs: Any = None
    max_completion_tokens: Int64 | None = None
    logprobs: bool | None = None
    top_logprobs: Any = None


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The assistant's message. ``content`` may be empty, and is then the empty text."""

    role: str
    content: str | None
    reasoning: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One choice of a chat answer. ``logprobs`` is kept as JSON; see `protocol.logprobs.ChatLogprobs`."""

    index: int
    message: ChatMessage
    finish_reason: str | None
    logprobs: msgspec.Raw | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    routed_experts: Any = None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of ``POST /v1/chat/completions/derender``."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: dict[str, Any]
    prompt_logprobs: list[dict[str, Any] | None] | None = None
    prompt_token_ids: list[int] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    weight_version: Any = None
    metrics: dict[str, Any] | None = None
