"""What the engine refuses, before it costs anything: requests that it would otherwise answer as if a field
were not there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import InvalidRequest
from ..model.loading import Model
from ..protocol.generate import GenerateRequest
from ..protocol.sampling import SamplingParams
from .weights import Weights

if TYPE_CHECKING:
    import torch

__all__ = ["check_request", "output_room"]

_UNKNOWN_FIELDS = ("thinking_token_budget", "repetition_detection")
_TRANSFERS = ("kv_transfer_params", "ec_transfer_params")
_RANGES: dict[str, tuple[float, float, bool]] = {
    "temperature": (0.0, math.inf, False),
    "top_p": (0.0, 1.0, True),
    "min_p": (0.0, 1.0, False),
    "top_k": (-1, math.inf, False),
    "presence_penalty": (-2.0, 2.0, False),
    "frequency_penalty": (-2.0, 2.0, False),
    "repetition_penalty": (0.0, math.inf, True),
    "max_tokens": (1, math.inf, False),
    "min_tokens": (0, math.inf, False),
    "n": (1, math.inf, False),
}
"""Lowest and highest value, and whether the lowest is itself out of range."""


def check_request(
    request: GenerateRequest, embeds: torch.Tensor | None, model: Model, weights: Weights
) -> None:
    """Refuse a request that this engine can't answer in full.

    Raises:
        InvalidRequest: naming the parameter.
    """
    for name in _TRANSFERS:
        if getattr(request, name) is not None:
            raise InvalidRequest(f"{name}: this engine hands no caches on.", name)
    if request.priority:
        raise InvalidRequest("priority: this engine serves in order of arrival.", "priority")
    _check_params(request.sampling_params, weights)
    _check_prompt(request, embeds, weights)
    output_room(request, embeds, model)


def output_room(request: GenerateRequest, embeds: torch.Tensor | None, model: Model) -> int:
    """Return how many tokens the output may have.

    Raises:
        InvalidRequest: the prompt leaves no room, or less than ``min_tokens`` asks for.
    """
    length = len(request.token_ids) if embeds is None else embeds.shape[0]
    room = min(request.sampling_params.max_tokens, model.max_model_len - length)
    if room < 1:
        raise InvalidRequest(
            f"A prompt of {length} tokens leaves no room in a context of {model.max_model_len}.", "prompt"
        )
    if request.sampling_params.min_tokens > room:
        raise InvalidRequest(f"min_tokens must be at most {room} here.", "min_tokens")
    return room


def _check_params(params: SamplingParams, weights: Weights) -> None:
    for name in _UNKNOWN_FIELDS:
        if getattr(params, name) is not None:
            raise InvalidRequest(f"{name} is not supported by this engine.", name)
    if params.extra_args:
        raise InvalidRequest("vllm_xargs (extra_args) are not supported by this engine.", "extra_args")
    for name, (low, high, above) in _RANGES.items():
        value = getattr(params, name)
        # Written so that NaN fails.
        if not low <= value <= high or (above and value == low) or math.isinf(value):
            raise InvalidRequest(f"{name} is out of range.", name)
    if params.stream_interval is not None and params.stream_interval < 1:
        raise InvalidRequest("stream_interval must be at least 1.", "stream_interval")
    if "" in params.stop:
        raise InvalidRequest("stop must not hold an empty text.", "stop")
    for name in ("logprobs", "prompt_logprobs"):
        count = getattr(params, name)
        if count is not None and count < -1:
            raise InvalidRequest(f"{name} must be at least -1.", name)
    for name in ("stop_token_ids", "logprob_token_ids"):
        ids = getattr(params, name) or [0]
        if not 0 <= min(ids) <= max(ids) < weights.vocab_size:
            raise InvalidRequest(f"{name} must hold ids in 0 to {weights.vocab_size - 1}.", name)


def _check_prompt(request: GenerateRequest, embeds: torch.Tensor | None, weights: Weights) -> None:
    if embeds is None:
        ids = request.token_ids
        if not ids:
            raise InvalidRequest("The prompt must have at least one token.", "prompt")
        if not 0 <= min(ids) <= max(ids) < weights.vocab_size:
            raise InvalidRequest(f"A prompt's ids must be in 0 to {weights.vocab_size - 1}.", "prompt")
        return
    if embeds.ndim != 2 or embeds.shape[0] < 1 or embeds.shape[1] != weights.hidden_size:
        raise InvalidRequest(f"prompt_embeds must be (rows, {weights.hidden_size}).", "prompt_embeds")
    if request.sampling_params.prompt_logprobs is not None:
        raise InvalidRequest("A prompt of embeddings has no prompt_logprobs.", "prompt_logprobs")
