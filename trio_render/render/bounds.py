"""Checks that run before any work: shapes, ranges and counts. Pure."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidRequest
from ..model.loading import Model
from ..protocol.sampling import SamplingFields

__all__ = ["check_cache_salt", "check_prompt_length", "check_stream_fields", "check_text"]

_MAX_SALT_CHARS = 128


def check_cache_salt(value: Any) -> str | None:
    """Return a request's ``cache_salt``. Raises `InvalidRequest` unless it is 1-128 characters, no NUL."""
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > _MAX_SALT_CHARS or "\x00" in value:
        raise InvalidRequest(
            f"cache_salt must be a text of 1 to {_MAX_SALT_CHARS} characters without NUL.", "cache_salt"
        )
    return value


def check_stream_fields(request: SamplingFields) -> None:
    """Raise `InvalidRequest` for fields that contradict ``stream``."""
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest("stream_options needs stream=true.", "stream_options")
    if request.prompt_logprobs is not None and request.stream:
        raise InvalidRequest("prompt_logprobs is not available with stream=true.", "prompt_logprobs")


def check_text(model: Model, text: str, max_tokens: int) -> None:
    """Raise `InvalidRequest` when ``text`` can't fit into ``max_tokens``, without encoding it."""
    if len(text) <= max_tokens:
        return
    at_least = model.tokenizer.bound.min_tokens(text)
    if at_least > max_tokens:
        raise InvalidRequest(
            f"The prompt has {len(text)} characters, which are at least {at_least} tokens;"
            f" the model takes prompts of at most {max_tokens}.",
            "input_text",
        )


def check_prompt_length(model: Model, n_tokens: int) -> None:
    """Raise `InvalidRequest` unless the prompt has tokens and leaves room for one more."""
    if n_tokens == 0:
        raise InvalidRequest("The prompt is empty: it has no tokens.", "prompt")
    if n_tokens >= model.max_model_len:
        raise InvalidRequest(
            f"The prompt has {n_tokens} tokens; the model's context of {model.max_model_len} tokens"
            f" takes at most {model.max_model_len - 1}, so that one can be generated.",
            "input_tokens",
        )
