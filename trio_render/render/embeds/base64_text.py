"""Base64 text -> bytes, in slices: no C call holds the GIL for more than a fraction of a millisecond."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pybase64

from ...errors import InvalidRequest
from ...workspace import Body, Checkpoint
from .layout import refusal
from .memory import TOUCHED_BYTES, anonymous_memory, touch_memory

__all__ = ["decode_base64"]

_SLICE_CHARS = 128 * 1024
"""A multiple of four. Memory for more bytes than these stand for is fetched from the kernel each time."""


def decode_base64(text: str | Body, checkpoint: Checkpoint) -> mmap.mmap:
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
    filled = touched = 0
    for piece in _slices(text):
        checkpoint()
        try:
            decoded = pybase64.b64decode(piece, validate=True)
        except ValueError:
            raise _not_base64() from None
        end = filled + len(decoded)
        if end > size:
            raise _not_base64()
        while touched < end:
            touch_memory(memory, touched)
            touched += TOUCHED_BYTES
        memory[filled:end] = decoded
        filled = end
    # Padding that is not at the end of the text has made a slice shorter than its length says.
    if filled != size:
        raise _not_base64()
    return memory


def _not_base64() -> InvalidRequest:
    return refusal("prompt_embeds must be base64 (standard alphabet, padded, no white space).")


def _padding(text: str | Body) -> int:
    if isinstance(text, str):
        return min(2, len(text[-4:]) - len(text[-4:].rstrip("=")))
    end = b""
    for piece in reversed(text):
        end = bytes(piece[-4:]) + end
        if len(end) >= 4:
            break
    return min(2, len(end) - len(end.rstrip(b"=")))


def _slices(text: str | Body) -> Iterator[str | bytes | memoryview]:
    """Yield the text in slices that are decoded each for itself: of four characters or a multiple of it."""
    if isinstance(text, str):
        for start in range(0, len(text), _SLICE_CHARS):
            yield text[start : start + _SLICE_CHARS]
        return
    rest = b""
    for piece in text:
        start = -len(rest) % 4
        rest += bytes(piece[:start])
        if len(rest) % 4:
            continue
        if rest:
            yield rest
        end = start + (len(piece) - start) // 4 * 4
        whole = memoryview(piece)[:end]
        for at in range(start, end, _SLICE_CHARS):
            yield whole[at : at + _SLICE_CHARS]
        rest = bytes(piece[end:])
    if rest:
        yield rest
