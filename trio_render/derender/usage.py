"""Token counts of an answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import MalformedRequest
from ..protocol.decoding import INT64_MAX
from ..protocol.generate import GenerateResponse
from ..protocol.usage import token_counts

__all__ = ["streamed_usage", "usage"]


def usage(prompt_tokens: int, responses: Iterable[GenerateResponse]) -> dict[str, Any]:
    """Return OpenAI's ``usage``. The prompt's count is the caller's: an engine's own is not looked at."""
    completion = sum(len(choice.token_ids or ()) for response in responses for choice in response.choices)
    return token_counts(prompt_tokens, completion)


def streamed_usage(given: dict[str, Any] | None, prompt_tokens: int | None) -> dict[str, Any] | None:
    """Return an engine's ``usage`` with its details. ``prompt_tokens`` replaces its own count of the prompt.

    Raises:
        MalformedRequest: a count that is no number of tokens.
    """
    if given is None:
        return None
    prompt = _count(given, "prompt_tokens") if prompt_tokens is None else prompt_tokens
    completion = _count(given, "completion_tokens")
    return {**given, **token_counts(prompt, completion)}


def _count(given: dict[str, Any], name: str) -> int:
    count = given.get(name)
    if count is None:
        return 0
    if type(count) is not int or not 0 <= count <= INT64_MAX:
        raise MalformedRequest(f"{name} must be a number of tokens.", f"body.generate_chunk.usage.{name}")
    return count
