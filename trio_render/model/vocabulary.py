"""Are these token ids of the vocabulary? One check, for prompts, outputs and logprobs."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidRequest, MalformedRequest
from .loading import Model

__all__ = ["check_token_ids"]


def check_token_ids(
    model: Model, token_ids: Sequence[int], param: str, error: type[InvalidRequest] = MalformedRequest
) -> None:
    """Raise ``error`` for ids outside the model's vocabulary."""
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < model.vocab_size:
        raise error(f"Token ids must be in 0 to {model.vocab_size - 1}.", param)
