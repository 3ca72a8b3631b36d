"""Sampling parameters of a request -> those of the engine: defaults, ranges, ``max_tokens``.

Source: vLLM 0.33 ``SamplingParams`` and its requests' ``to_sampling_params``.
"""

from __future__ import annotations

from typing import Any

from ..errors import InvalidRequest, MalformedRequest
from ..model.loading import Model
from ..model.vocabulary import check_token_ids
from ..policy import Policy
from ..protocol.sampling import DELTAS, FINAL_ONLY, SamplingFields, SamplingParams
from .structured_outputs import structured_outputs

__all__ = ["SamplingBasis", "resolve_max_tokens", "sampling_basis"]

_MAX_STOP_STRINGS = 4
_TINY_TEMPERATURE = 0.01
_GREEDY = 1e-5


class SamplingBasis:
    """A request's sampling parameters, but for ``max_tokens``, which depends on the prompt's length."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def replaced(self, **fields: Any) -> SamplingBasis:
        """Return these parameters with some fields set otherwise."""
        return SamplingBasis({**self._fields, **fields})

    def with_max_tokens(self, max_tokens: int) -> SamplingParams:
        """Return the parameters for one prompt."""
        return SamplingParams(max_tokens=max_tokens, **self._fields)


def sampling_basis(
    request: SamplingFields,
    model: Model,
    policy: Policy,
    *,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> SamplingBasis:
    """Return the engine's parameters for ``request``.

    Raises:
        InvalidRequest: a value out of range, or two that contradict each other. The parameter is named.
    """
    if request.use_beam_search:
        raise InvalidRequest("Beam search is not supported.", "use_beam_search")
    defaults = model.sampling_defaults
    temperature = _number(request, "temperature", defaults.get("temperature", 1.0), 0.0, 2.0)
    fields: dict[str, Any] = {
        "temperature": max(temperature, _TINY_TEMPERATURE) if temperature >= _GREEDY else 0.0,
        "top_p": _number(request, "top_p", defaults.get("top_p", 1.0), 0.0, 1.0, above=True),
        "top_k": _integer(request, "top_k", defaults.get("top_k", 0), -1),
        "min_p": _number(request, "min_p", defaults.get("min_p", 0.0), 0.0, 1.0),
        "presence_penalty": _number(request, "presence_penalty", 0.0, -2.0, 2.0),
        "frequency_penalty": _number(request, "frequency_penalty", 0.0, -2.0, 2.0),
        "repetition_penalty": _number(
            request, "repetition_penalty", defaults.get("repetition_penalty", 1.0), 0.0, 2.0, above=True
        ),
        "n": _count(request, policy, temperature),
        "seed": None if request.seed == -1 else request.seed,
        "min_tokens": _integer(request, "min_tokens", 0, 0),
        "logprobs": logprobs,
        "prompt_logprobs": prompt_logprobs,
        "skip_reading_prefix_cache": prompt_logprobs is not None,
        "structured_outputs": structured_outputs(request.structured_outputs, request.response_format),
        "output_kind": DELTAS if request.stream else FINAL_ONLY,
        "skip_clone": True,
    }
    if temperature < _GREEDY:
        fields |= {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
    return SamplingBasis(fields | _stop_fields(request) | _token_fields(request, model) | _plain(request))


def resolve_max_tokens(
    asked: int | None, default: int | None, prompt_tokens: int, model: Model, *, echo_only: bool = False
) -> int:
    """Return how many tokens may be generated after a prompt of ``prompt_tokens``.

    Args:
        asked: the request's value. More than the whole context is an error; more than the room that the
            prompt leaves is cut to it.
        default: used when nothing was asked for; ``None`` is all the room.
        echo_only: 0 is allowed and becomes 1: the prompt is echoed, and the one token thrown away.

    Raises:
        InvalidRequest (``max_tokens``): out of range.
    """
    room = model.max_model_len - prompt_tokens
    if asked is None:
        return room if default is None else max(1, min(default, room))
    if asked == 0 and echo_only:
        return 1
    if not 1 <= asked <= model.max_model_len:
        raise InvalidRequest(f"max_tokens must be 1 to {model.max_model_len}, not {asked}.", "max_tokens")
    return min(asked, room)


def _number(
    request: SamplingFields, name: str, default: float, low: float, high: float, *, above: bool = False
) -> float:
    value = getattr(request, name)
    value = float(default if value is None else value)
    # Written so that NaN fails.
    if not (low <= value <= high) or (above and value == low):
        raise InvalidRequest(f"{name} must be {'above' if above else 'from'} {low:g} to {high:g}.", name)
    return value


def _integer(request: SamplingFields, name: str, default: int, low: int) -> int:
    value = getattr(request, name)
    if value is None:
        return default
    if value < low:
        raise InvalidRequest(f"{name} must be at least {low}, not {value}.", name)
    return int(value)


def _count(request: SamplingFields, policy: Policy, temperature: float) -> int:
    n = 1 if request.n is None else request.n
    if not 1 <= n <= policy.max_sequences:
        raise InvalidRequest(f"n must be 1 to {policy.max_sequences}, not {n}.", "n")
    if n > 1 and temperature < _GREEDY:
        raise InvalidRequest("n must be 1 when temperature is 0: all sequences would be the same.", "n")
    return n


def stop_strings(value: Any) -> list[str]:
    """Return ``stop`` as a list.

    Raises:
        MalformedRequest (``body.stop``): neither a text nor up to four texts.
    """
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise MalformedRequest("stop must be a text or a list of texts.", "body.stop")
    if len(stops) > _MAX_STOP_STRINGS:
        raise MalformedRequest(f"stop takes at most {_MAX_STOP_STRINGS} texts.", "body.stop")
    return stops


def _stop_fields(request: SamplingFields) -> dict[str, Any]:
    stop = stop_strings(request.stop)
    if "" in stop:
        raise InvalidRequest("stop must not hold an empty text.", "stop")
    included = bool(request.include_stop_str_in_output)
    held = 0 if included or not stop else max(map(len, stop)) - 1
    return {
        "stop": stop,
        "stop_token_ids": list(dict.fromkeys(request.stop_token_ids or ())),
        "include_stop_str_in_output": included,
        "output_text_buffer_length": held,
        "ignore_eos": bool(request.ignore_eos),
    }


def _token_fields(request: SamplingFields, model: Model) -> dict[str, Any]:
    for name in ("stop_token_ids", "allowed_token_ids", "logprob_token_ids"):
        check_token_ids(model, getattr(request, name) or (), name, InvalidRequest)
    if request.allowed_token_ids is not None and not request.allowed_token_ids:
        raise InvalidRequest("allowed_token_ids must not be empty.", "allowed_token_ids")
    if request.bad_words and "" in request.bad_words:
        raise InvalidRequest("bad_words must not hold an empty text.", "bad_words")
    return {
        "allowed_token_ids": request.allowed_token_ids,
        "logprob_token_ids": request.logprob_token_ids,
        "bad_words": request.bad_words or [],
        "logit_bias": _logit_bias(request.logit_bias, model),
    }


def _logit_bias(value: dict[str, Any] | None, model: Model) -> dict[str, float] | None:
    if value is None:
        return None
    bias: dict[str, float] = {}
    for key, amount in value.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            shown = key if key.isdecimal() and len(key) < 20 else "..."
            raise MalformedRequest("A logit bias must be a number.", f"body.logit_bias.{shown}")
        if not (key.isascii() and key.isdecimal() and len(key) < 20 and int(key) < model.vocab_size):
            raise InvalidRequest("Keys of logit_bias must be token ids of the vocabulary.", "logit_bias")
        bias[key] = float(min(max(amount, -100.0), 100.0))
    return bias


def _plain(request: SamplingFields) -> dict[str, Any]:
    skip, spaces = request.skip_special_tokens, request.spaces_between_special_tokens
    return {
        "skip_special_tokens": skip if skip is not None else True,
        "spaces_between_special_tokens": spaces if spaces is not None else True,
        "extra_args": request.vllm_xargs,
        "stream_interval": request.stream_interval,
        "thinking_token_budget": request.thinking_token_budget,
        "repetition_detection": request.repetition_detection,
    }


def logprob_count(value: Any, name: str, policy: Policy) -> int | None:
    """Return a request's number of candidates: -1 for all, ``None`` for none.

    Raises:
        InvalidRequest (``name``): not a number, below -1, or above the policy's bound.
    """
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    bound = policy.max_logprobs
    if isinstance(value, bool) or not isinstance(value, int) or value < -1:
        raise InvalidRequest(f"{name} must be a whole number of at least -1.", name)
    if bound != -1 and value > bound:
        raise InvalidRequest(f"{name} must be at most {bound}, not {value}.", name)
    return value
