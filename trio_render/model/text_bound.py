"""A floor under the number of tokens of a text, without encoding it.

Encoding six million letters takes seconds and can't be interrupted; a text that can't fit is refused
by counting. Each token covers at most so many bytes, so many letters and so many digits.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any, Self

from .token_table import TokenTable

__all__ = ["TextBound"]

_LETTERS = bytes((*range(0x41, 0x5B), *range(0x61, 0x7B)))
_DIGITS = bytes(range(0x30, 0x3A))
_SPACES = b" \t\n\r\v\f"
_ASCII = bytes(range(0x80))
_MAX_SHRINK = 3
"""The Kelvin sign (3 bytes) composes to K, three Hangul letters (9) to a syllable of 3."""
_PART_CHARS = 1 << 16
_SEAM_BYTES = 64


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
    """Most bytes, letters and digits that one token of a vocabulary covers. 0: no such bound holds."""

    max_bytes: int
    max_letters: int
    max_digits: int
    keeps_spaces: bool
    composes: bool

    @classmethod
    def of(cls, table: TokenTable, normalizer: dict[str, Any] | None, strips_spaces: bool) -> Self:
        """Measure ``table``. ``strips_spaces``: some added token swallows the spaces beside it."""
        kinds = _normalizer_kinds(normalizer)
        if not kinds <= {"NFC", "Prepend", "Replace"}:
            return cls(0, 0, 0, False, False)
        values = table.byte_values
        return cls(
            max_bytes=max(map(len, values), default=0),
            max_letters=_most(values, _LETTERS),
            max_digits=_most(values, _DIGITS),
            keeps_spaces=not strips_spaces,
            composes="NFC" in kinds,
        )

    def min_tokens(self, text: str) -> int:
        """Return a number of tokens that no encoding of ``text`` can be below."""
        if not self.max_bytes:
            return 0
        data = text.encode("utf-8", "replace")
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


def _normalizer_kinds(spec: dict[str, Any] | None) -> set[str]:
    if spec is None:
        return set()
    if spec["type"] == "Sequence":
        return set().union(*(_normalizer_kinds(part) for part in spec["normalizers"]))
    return {spec["type"]}
