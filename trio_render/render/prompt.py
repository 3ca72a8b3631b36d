"""Prompt text -> token ids, within the model's bounds."""

from __future__ import annotations

from typing import NamedTuple

from ..model.loading import Model
from ..model.vocabulary import check_token_ids
from .bounds import check_prompt_length, check_text
from .truncation import Truncation

__all__ = ["Prompt", "encode_prompt", "token_prompt"]


class Prompt(NamedTuple):
    """A prompt ready for an engine. ``offsets`` are ``(start, end)`` in characters, where asked for."""

    token_ids: list[int]
    offsets: list[tuple[int, int]] | None


def encode_prompt(
    model: Model, text: str, *, add_special_tokens: bool, with_offsets: bool, truncation: Truncation
) -> Prompt:
    """Return ``text`` as a prompt. Truncation cuts the text's own ids; special tokens around it stay.

    Raises:
        InvalidRequest: too long (``input_text`` by its characters, ``input_tokens`` by its tokens), or empty.
    """
    if truncation.max_tokens is None:
        check_text(model, text, model.max_model_len - 1)
    tokenizer = model.tokenizer
    before, after = tokenizer.special_affixes(add_special_tokens)
    reserved = len(before) + len(after)
    offsets = None
    if with_offsets:
        ids, places = tokenizer.encode_with_offsets(text)
        nowhere = (0, 0)
        offsets = [nowhere] * len(before) + truncation.keep(places, reserved) + [nowhere] * len(after)
    else:
        ids = tokenizer.encode(text)
    ids = truncation.keep(ids, reserved)
    check_prompt_length(model, len(ids) + reserved)
    # In place: copying millions of ids holds the GIL for as long as making them.
    ids[:0] = before
    ids += after
    return Prompt(ids, offsets)


def token_prompt(model: Model, token_ids: list[int], truncation: Truncation, param: str) -> Prompt:
    """Return given ids as a prompt. Raises `InvalidRequest` for ids out of range, or too many."""
    check_token_ids(model, token_ids, param)
    kept = truncation.keep(token_ids)
    check_prompt_length(model, len(kept))
    return Prompt(kept, None)
