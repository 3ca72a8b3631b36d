"""A floor under the number of tokens of a text, without encoding it.

Encoding six million letters takes seconds and can't be interrupted; a text that can't fit is refused
by counting. Each token covers at most so many bytes, so many letters and so many digits.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any, Self

from .token_table import TokenTable

__all__ = ["TextBound", "is_lossless", "spec_parts"]

_LETTERS = bytes((*range(0x41, 0x5B), *range(0x61, 0x7B)))
_DIGITS = bytes(range(0x30, 0x3A))
_SPACES = b" \t\n\r\v\f"
_ASCII = bytes(range(0x80))
_MAX_SHRINK = 3
"""The Kelvin sign (3 bytes) composes to K, three Hangul letters (9) to a syllable of 3."""
_PART_CHARS = 1 << 16
_SEAM_BYTES = 64
_STEPS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}
"""What a sequence of each part calls its steps."""


def _is_composed(text: str) -> bool:
    """Say whether composing changes nothing, but for a character at a seam of the parts looked at."""
    return all(
        unicodedata.is_normalized("NFC", text[start : start + _PART_CHARS])
        for start in range(0, len(text), _PART_CHARS)
    )


def _count(data: bytes, characters: bytes) -> int:
    return len(data) - len(data.translate(None, characters))


def _most(values: list[bytes], characters: bytes) -> int:
    """Return the largest number of ``characters`` in one of ``values``, without a loop over them."""
    others = bytes(byte for byte in range(0xFF) if byte not in characters)
    return max(map(len, b"\xff".join(values).translate(None, others).split(b"\xff")))


@dataclass(frozen=True, slots=True)
class TextBound:
    """Most bytes, letters and digits that one token of a vocabulary covers. 0: no such bound holds.

    ``dropped`` are bytes without a token, which encoding leaves out.
    """

    max_bytes: int
    max_letters: int
    max_digits: int
    keeps_spaces: bool
    composes: bool
    dropped: bytes

    @classmethod
    def of(cls, table: TokenTable, spec: dict[str, Any], strips_spaces: bool) -> Self:
        """Measure ``table``.

        Args:
            spec: the ``tokenizer.json`` without its vocabulary. What changes a text in ways that can't be
                bounded gives no bound at all.
            strips_spaces: some added token swallows the spaces beside it.
        """
        normalizers, pre_tokenizers = spec_parts(spec, "normalizer"), spec_parts(spec, "pre_tokenizer")
        keeps = table.rules.byte_level or table.rules.byte_fallback
        if not (keeps and all(map(_is_bounded, normalizers)) and all(map(is_lossless, pre_tokenizers))):
            return cls(0, 0, 0, False, False, b"")
        values = table.byte_values
        spelled = {value[0] for value in values if len(value) == 1} if table.rules.byte_level else range(256)
        return cls(
            max_bytes=max(map(len, values), default=0),
            max_letters=_most(values, _LETTERS),
            max_digits=_most(values, _DIGITS),
            keeps_spaces=not strips_spaces,
            composes=any(part["type"] == "NFC" for part in normalizers),
            dropped=bytes(byte for byte in range(256) if byte not in spelled),
        )

    def min_tokens(self, text: str) -> int:
        """Return a number of tokens that no encoding of ``text`` can be below."""
        if not self.max_bytes:
            return 0
        data = text.encode("utf-8", "replace").translate(None, self.dropped)
        total, swallowed = len(data), 0
        if self.composes and not _is_composed(text):
            # Composition may swallow a letter before a combining sign; it makes no text shorter than a third.
            swallowed = total - _count(data, _ASCII)
            total //= _MAX_SHRINK
        if not self.keeps_spaces:
            total -= _count(data, _SPACES)
        letters = _count(data, _LETTERS) - swallowed
        seams = len(text) // _PART_CHARS if self.composes else 0
        return max(
            (total - seams * _SEAM_BYTES) // self.max_bytes,
            letters // self.max_letters if self.max_letters else 0,
            _count(data, _DIGITS) // self.max_digits if self.max_digits else 0,
            0,
        )


def spec_parts(spec: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the steps of a normalizer, pre-tokenizer or post-processor, sequences taken apart."""
    part = spec.get(name)
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [inner for step in part[_STEPS[name]] for inner in spec_parts({name: step}, name)]
    return [part]


def _is_bounded(normalizer: dict[str, Any]) -> bool:
    """Say whether a normalizer makes a text no shorter, but for what composition does."""
    if normalizer["type"] == "Replace":
        old = normalizer["pattern"].get("String")
        return old is not None and len(normalizer["content"].encode()) >= len(old.encode())
    return normalizer["type"] in ("NFC", "Prepend")


def is_lossless(pre_tokenizer: dict[str, Any]) -> bool:
    """Say whether a pre-tokenizer keeps every character."""
    kinds = ("ByteLevel", "Metaspace", "Split", "Digits", "Punctuation")
    return pre_tokenizer["type"] in kinds and pre_tokenizer.get("behavior") != "Removed"
