"""Base64 text -> bytes, in slices: no C call holds the GIL for more than a fraction of a millisecond."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence

import pybase64

from ...errors import InvalidRequest
from ...workspace import Checkpoint
from .layout import refusal
from .memory import anonymous_memory

__all__ = ["decode_base64"]

_SLICE_CHARS = 256 * 1024
"""A multiple of four. Decoding that many characters and storing the bytes takes about 0.1 ms."""


def decode_base64(text: str | Sequence[bytes], checkpoint: Checkpoint) -> mmap.mmap:
    """Return the bytes that ``text`` stands for.

    Args:
        text: base64 in the standard alphabet (RFC 4648, section 4) with its padding, and nothing else: no
            white space, no line breaks. As a text, or as ASCII in pieces of any length.

    Raises:
        InvalidRequest: it is empty, or not such a text.
    """
    chars = len(text) if isinstance(text, str) else sum(map(len, text))
    if not chars:
        raise refusal("prompt_embeds must not be empty.")
    if chars % 4:
        raise _not_base64()
    size = chars // 4 * 3 - _padding(text)
    if size < 1:
        raise _not_base64()
    memory = anonymous_memory(size)
    filled = 0
    for piece in _text_slices(text) if isinstance(text, str) else _byte_slices(text):
        checkpoint()
        try:
            decoded = pybase64.b64decode(piece, validate=True)
        except ValueError:
            raise _not_base64() from None
        end = filled + len(decoded)
        if end > size:
            raise _not_base64()
        memory[filled:end] = decoded
        filled = end
    # Padding that is not at the end of the text has made a slice shorter than its length says.
    if filled != size:
        raise _not_base64()
    return memory


def _not_base64() -> InvalidRequest:
    return refusal("prompt_embeds must be base64 (standard alphabet, padded, no white space).")


def _padding(text: str | Sequence[bytes]) -> int:
    if isinstance(text, str):
        return min(2, len(text[-4:]) - len(text[-4:].rstrip("=")))
    end = b""
    for piece in reversed(text):
        end = piece[-4:] + end
        if len(end) >= 4:
            break
    return min(2, len(end) - len(end.rstrip(b"=")))


def _text_slices(text: str) -> Iterator[str]:
    for start in range(0, len(text), _SLICE_CHARS):
        yield text[start : start + _SLICE_CHARS]


def _byte_slices(pieces: Sequence[bytes]) -> Iterator[bytes]:
    """Yield ``pieces`` regrouped, so that each but the last has a length that is a multiple of four."""
    held: list[bytes | memoryview] = []
    n_held = 0
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), _SLICE_CHARS):
            part = view[start : start + _SLICE_CHARS]
            held.append(part)
            n_held += len(part)
            if n_held >= _SLICE_CHARS:
                joined = b"".join(held)
                cut = n_held - n_held % 4
                yield joined[:cut]
                held = [joined[cut:]]
                n_held -= cut
    if n_held:
        yield b"".join(held)
