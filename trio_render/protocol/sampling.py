"""Sampling parameters: as a request carries them, and as the engine receives them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from .decoding import INT64_MAX, INT64_MIN

__all__ = [
    "DELTAS",
    "FINAL_ONLY",
    "Int64",
    "SamplingFields",
    "SamplingParams",
    "StreamOptions",
    "StructuredOutputs",
]

DELTAS, FINAL_ONLY = 1, 2
"""Values of ``output_kind``."""

Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=INT64_MAX)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``stream_options``: whether usage is streamed, and whether with every chunk."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class SamplingFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that chat and completion requests share. ``None`` means: not asked for.

    Where a field is ``Any``, the reference checks it by hand, and so do we (`render.sampling`): its
    error then names the bare parameter instead of a place in the body.
    """

    model: str | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int64 | None = None
    min_p: float | None = None
    n: Int64 | None = None
    seed: Int64 | None = None
    max_tokens: Int64 | None = None
    min_tokens: Int64 | None = None
    stop: Any = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    logit_bias: dict[str, Any] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: Any = None
    logprob_token_ids: list[int] | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    thinking_token_budget: Int64 | None = None
    repetition_detection: dict[str, Any] | None = None
    response_format: Any = None
    structured_outputs: Any = None
    vllm_xargs: dict[str, Any] | None = None

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stream_interval: _Positive | None = None
    echo: bool | None = None
    user: str | None = None

    truncate_prompt_tokens: Int64 | None = None
    truncation_side: Literal["left", "right"] | None = None
    return_token_ids: bool | None = None
    return_token_offsets: bool | None = None

    request_id: str | None = None
    priority: Int64 | None = None
    cache_salt: Any = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None


class StructuredOutputs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A constraint on the output. Exactly one of the first six is set."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the engine samples with. Fields without a default are always written.

    Source: vLLM 0.33 ``SamplingParams`` as its render endpoints write it. ``output_kind`` is 1 for
    streams (deltas) and 2 otherwise (the final answer only).
    """

    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    temperature: float
    top_p: float
    min_p: float
    stop: list[str]
    stop_token_ids: list[int]
    bad_words: list[str]
    output_kind: int
    skip_reading_prefix_cache: bool
    skip_clone: bool
    n: int = 1
    top_k: int = 0
    seed: int | None = None
    ignore_eos: bool = False
    max_tokens: int = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_text_buffer_length: int = 0
    structured_outputs: StructuredOutputs | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None
    stream_interval: int | None = None
    thinking_token_budget: int | None = None
    repetition_detection: dict[str, Any] | None = None
