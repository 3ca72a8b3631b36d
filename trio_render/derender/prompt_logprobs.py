"""``prompt_logprobs`` of an engine's answer: passed through, with the texts that are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InvalidRequest
from ..model.loading import Model

__all__ = ["resolved_prompt_logprobs"]

PromptLogprobs = list[dict[str, dict[str, Any]] | None]


def resolved_prompt_logprobs(
    model: Model, given: PromptLogprobs | None, checkpoint: Callable[[], None]
) -> PromptLogprobs | None:
    """Return ``given`` in place; an entry whose ``decoded_token`` is null gets its token's own text.

    Raises:
        InvalidRequest: a key that is no id of the vocabulary, where a text is missing.
    """
    if given is None:
        return None
    resolved: PromptLogprobs = []
    for place in given:
        checkpoint()
        resolved.append(None if place is None else {key: _entry(model, key, place[key]) for key in place})
    return resolved


def _entry(model: Model, key: str, entry: dict[str, Any]) -> dict[str, Any]:
    if entry.get("decoded_token") is not None:
        return entry
    if not (key.isascii() and key.isdecimal() and len(key) < 20 and int(key) < model.vocab_size):
        raise InvalidRequest(
            "Keys of prompt_logprobs must be token ids of the vocabulary.", "prompt_logprobs"
        )
    value = model.tokenizer.table.byte_values[int(key)]
    return {**entry, "decoded_token": value.decode("utf-8", "replace")}
