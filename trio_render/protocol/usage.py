"""Counts of tokens as OpenAI's ``usage`` has them, and which of them a stream's client wants."""

from __future__ import annotations

from .sampling import StreamOptions

__all__ = ["counts_always", "counts_at_end", "token_counts"]


def token_counts(prompt: int, completion: int) -> dict[str, int]:
    """Return ``usage`` for an answer of ``completion`` tokens to ``prompt`` tokens."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def counts_at_end(options: StreamOptions | None) -> bool:
    """Say whether a stream ends with a chunk of counts."""
    return options is not None and bool(options.include_usage)


def counts_always(options: StreamOptions | None) -> bool:
    """Say whether each chunk has counts as well."""
    return options is not None and counts_at_end(options) and bool(options.continuous_usage_stats)
