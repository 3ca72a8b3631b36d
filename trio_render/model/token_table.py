"""What each token id stands for: id -> bytes. Built once, immutable, shared by threads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ModelLoadError

__all__ = ["ALPHABET", "DecoderRules", "TokenTable", "decoder_rules", "whole_text"]


def _byte_level_alphabet() -> dict[int, int]:
    """Return the byte-level BPE alphabet as character -> byte. Source: GPT-2's ``bytes_to_unicode``."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: byte for byte in printable}
    others = [byte for byte in range(256) if byte not in alphabet]
    return alphabet | {256 + n: byte for n, byte in enumerate(others)}


ALPHABET = _byte_level_alphabet()
"""What byte-level vocabularies spell bytes with: character -> byte."""
_IN_ALPHABET = re.compile(f"[{re.escape(''.join(map(chr, ALPHABET)))}]*")


@dataclass(frozen=True, slots=True)
class DecoderRules:
    """How pieces of a vocabulary become bytes.

    Attributes:
        byte_level: pieces are written in the byte-level alphabet.
        byte_fallback: pieces like ``<0xF0>`` are single bytes, and each broken one is shown by
            itself; otherwise one replacement sign stands for a whole broken sequence.
        replacements: texts to replace in every piece, in order.
        strips_first_space: one leading space of the whole text is not shown.
    """

    byte_level: bool
    byte_fallback: bool
    replacements: tuple[tuple[str, str], ...]
    strips_first_space: bool

    def piece_bytes(self, piece: str) -> bytes:
        """Return the bytes that ``piece`` adds to the text."""
        if self.byte_fallback and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            try:
                return bytes((int(piece[3:5], 16),))
            except ValueError:
                pass
        if piece.isascii():
            # The byte-level alphabet writes printable ASCII as itself, and lacks the rest of ASCII.
            return piece.encode()
        for old, new in self.replacements:
            piece = piece.replace(old, new)
        if self.byte_level and _IN_ALPHABET.fullmatch(piece):
            return piece.translate(ALPHABET).encode("latin-1")
        return piece.encode("utf-8", "replace")


def decoder_rules(spec: dict[str, Any] | None) -> DecoderRules:
    """Return the rules that a ``tokenizer.json`` states in ``decoder``.

    Raises:
        ModelLoadError: a decoder that joins pieces in a way a table can't (WordPiece, CTC, ...).
    """
    parts = spec["decoders"] if spec and spec["type"] == "Sequence" else [spec] if spec else []
    byte_level = byte_fallback = strips = False
    replacements: list[tuple[str, str]] = []
    for part in parts:
        kind = part["type"]
        if kind == "ByteLevel":
            byte_level = True
        elif kind == "ByteFallback":
            byte_fallback = True
        elif kind == "Replace" and "String" in part["pattern"]:
            replacements.append((part["pattern"]["String"], part["content"]))
        elif kind == "Metaspace":
            replacements.append((part["replacement"], " "))
            strips = part.get("prepend_scheme", "always") != "never"
        elif kind == "Strip" and part["content"] == " " and part["start"] in (0, 1) and part["stop"] == 0:
            strips = strips or part["start"] == 1
        elif kind != "Fuse":
            raise ModelLoadError(f"The tokenizer's decoder {kind!r} is not supported.")
    return DecoderRules(byte_level, byte_fallback, tuple(replacements), strips)


class TokenTable:
    """Id -> bytes, padded with nothing up to the model's vocabulary size.

    Safe to use from many threads. Ids inside the model's vocabulary that the tokenizer doesn't know
    (padding of the embedding matrix) stand for no bytes.

    Attributes:
        longest: bytes of the longest token.
    """

    __slots__ = ("byte_values", "longest", "rules", "special_ids")

    def __init__(
        self, pieces: Sequence[str | None], rules: DecoderRules, special_ids: frozenset[int], vocab_size: int
    ) -> None:
        self.rules = rules
        self.special_ids = special_ids
        self.byte_values = [b"" if piece is None else rules.piece_bytes(piece) for piece in pieces]
        self.byte_values += [b""] * (vocab_size - len(pieces))
        self.longest = max(map(len, self.byte_values), default=0)

    def __len__(self) -> int:
        return len(self.byte_values)


def whole_text(value: bytes) -> str | None:
    """Return a token's text where it is valid UTF-8 by itself, else ``None``."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
