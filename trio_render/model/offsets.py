"""Where in a text each token stands, told by the tokens' bytes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from .text_bound import is_lossless, spec_parts
from .token_table import ALPHABET, DecoderRules, TokenTable

__all__ = ["offsets", "spells_texts"]

_CONTINUATION = bytes(range(0x80, 0xC0))
"""In UTF-8 every other byte begins a character."""
_PART_TOKENS = 4096
_BYTES_AS_THEY_ARE = DecoderRules(
    byte_level=True, byte_fallback=False, replacements=(), strips_first_space=False
)


def offsets(table: TokenTable, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
    """Return for each id ``(start, end)`` in characters of ``text``, which the ids were made from.

    A character split over several tokens belongs to each of them as a whole.

    Raises:
        ValueError: the ids stand for another text.
        UnicodeEncodeError: ``text`` holds a lone surrogate.
    """
    data = text.encode()
    places: list[tuple[int, int]] = []
    at = char = 0
    # In parts, between which other threads have their turn.
    for first in range(0, len(ids), _PART_TOKENS):
        values = [table.byte_values[i] for i in ids[first : first + _PART_TOKENS]]
        part = b"".join(values)
        if not data.startswith(part, at):
            break
        at += len(part)
        if part.isascii():
            places += pairwise(accumulate(map(len, values), initial=char))
        else:
            begun = (len(value.translate(None, _CONTINUATION)) for value in values)
            ends = list(accumulate(begun, initial=char))
            starts = (end - _continues(value) for end, value in zip(ends, values, strict=False))
            places += zip(starts, ends[1:], strict=True)
        char = places[-1][1]
    if len(places) != len(ids) or at != len(data):
        raise ValueError("The token ids stand for another text than they were made from.")
    return places


def _continues(value: bytes) -> bool:
    return b"\x80" <= value[:1] < b"\xc0"


def spells_texts(spec: dict[str, Any], model: Any, added: Mapping[int, Any], table: TokenTable) -> bool:
    """Say whether the bytes of a text's ids are the text's, and `offsets` what ``tokenizers`` gives.

    Args:
        spec: the ``tokenizer.json`` without its vocabulary.
        model: the model of ``tokenizers``, which splits words.
        added: the added tokens by their ids.
        table: the bytes of the ids.
    """
    splits = spec_parts(spec, "pre_tokenizer")
    byte_level = [part for part in splits if part["type"] == "ByteLevel"]
    return (
        not spec_parts(spec, "normalizer")
        and len(byte_level) == 1
        and not byte_level[0].get("add_prefix_space", True)
        and all(part["type"] != "Metaspace" and is_lossless(part) for part in splits)
        and all(map(_keeps_offsets, spec_parts(spec, "post_processor")))
        and table.rules == _BYTES_AS_THEY_ARE
        and _splits_words_only(model)
        and all(model.token_to_id(character) is not None for character in map(chr, ALPHABET))
        and all(
            table.byte_values[i] == token.content.encode()
            and not (token.lstrip or token.rstrip or token.single_word)
            for i, token in added.items()
        )
    )


def _keeps_offsets(post_processor: dict[str, Any]) -> bool:
    """Say whether a post-processor leaves the spaces that a token begins with in its range."""
    kind = post_processor["type"]
    return kind == "TemplateProcessing" or (kind == "ByteLevel" and not post_processor["trim_offsets"])


def _splits_words_only(model: Any) -> bool:
    """Say whether a model joins the bytes of a word to tokens, and does no more."""
    marks = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    return type(model).__name__ == "BPE" and not any(getattr(model, mark) for mark in marks)
