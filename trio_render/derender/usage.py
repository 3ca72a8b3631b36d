"""Token counts of an answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..protocol.generate import GenerateResponse

__all__ = ["usage"]


def usage(prompt_tokens: int, responses: Iterable[GenerateResponse]) -> dict[str, Any]:
    """Return OpenAI's ``usage``. The prompt's count is the caller's: an engine's own is not looked at."""
    completion = sum(len(choice.token_ids or ()) for response in responses for choice in response.choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
    }
