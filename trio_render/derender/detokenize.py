"""Token ids -> text, over the table of token bytes.

Text is held back only while a character is incomplete: then the token that opens the character is held
whole, with the spaces it may carry. Bytes that can't become a character are U+FFFD as soon as that is
certain. So a sequence cut inside a character ends before it, in one piece or chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..model.token_table import TokenTable

__all__ = ["START", "Seed", "detokenize", "seed_from_prompt"]

_REPLACEMENT = "\ufffd"
_ESCAPES = {0xDC00 + byte: _REPLACEMENT for byte in range(0x80, 0x100)}
_TAIL_TOKENS = 8


class Seed(NamedTuple):
    """Where a sequence starts: what its prompt leaves behind.

    Attributes:
        at_start: nothing was shown yet, so a SentencePiece decoder drops the first space.
        pending: the first bytes (up to 3) of a character that the prompt's end cuts.
    """

    at_start: bool
    pending: bytes


START = Seed(at_start=True, pending=b"")


def seed_from_prompt(table: TokenTable, prompt_ids: Sequence[int], *, skip_special_tokens: bool) -> Seed:
    """Return how a sequence after ``prompt_ids`` (or their tail) starts."""
    values = table.byte_values
    special = table.special_ids if skip_special_tokens else frozenset[int]()
    visible = any(values[i] and i not in special for i in prompt_ids)
    tail = b"".join(values[i] for i in prompt_ids[-_TAIL_TOKENS:] if i not in special)
    return Seed(not visible, incomplete_tail(tail))


def detokenize(
    table: TokenTable,
    token_ids: Sequence[int],
    *,
    skip_special_tokens: bool,
    seed: Seed = START,
    flush: bool = False,
) -> str:
    """Return the text of ``token_ids``, which must be below ``len(table)``.

    Args:
        skip_special_tokens: special tokens add nothing.
        seed: see `seed_from_prompt`.
        flush: show an incomplete character at the end as U+FFFD, as a plain decode does. Otherwise it is
            held back, with the rest of the token that opens it.
    """
    values = table.byte_values
    if skip_special_tokens:
        special = table.special_ids
        pieces = [values[i] for i in token_ids if i not in special]
    else:
        pieces = [values[i] for i in token_ids]
    return join_pieces(table, pieces, seed, flush=flush)


def join_pieces(table: TokenTable, pieces: list[bytes], seed: Seed, *, flush: bool) -> str:
    """Return the text of byte pieces that follow ``seed``. ``pieces`` may be changed."""
    if seed.at_start and table.rules.strips_first_space:
        strip_first_space(pieces)
    data = b"".join(pieces)
    if seed.pending and continues(seed.pending, data):
        data = seed.pending + data
    try:
        return data.decode()
    except UnicodeDecodeError:
        bytewise = table.rules.byte_fallback
        if flush:
            return decode_broken(data, bytewise)
        return decode_broken(data[: clean_length(data, pieces)[0]], bytewise)


def strip_first_space(pieces: list[bytes]) -> bool:
    """Take one space off the first piece that is not empty, in place. Say whether there was such a piece."""
    for n, piece in enumerate(pieces):
        if piece:
            pieces[n] = piece.removeprefix(b" ")
            return True
    return False


def incomplete_tail(data: bytes) -> bytes:
    """Return the bytes at the end of ``data`` that begin a character and don't finish it (0 to 3)."""
    for length in range(1, min(3, len(data)) + 1):
        lead = data[-length]
        if lead >= 0xC0:
            tail = data[-length:]
            return tail if is_incomplete(tail) else b""
        if lead < 0x80:
            break
    return b""


def is_incomplete(data: bytes) -> bool:
    """Say whether ``data`` is the beginning of exactly one character."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start == 0 and error.end == len(data) and error.reason == "unexpected end of data"
    return False


def continues(pending: bytes, data: bytes) -> bool:
    """Say whether ``data`` goes on with the character that ``pending`` begins."""
    head = pending + data[: 4 - len(pending)]
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start > 0 or error.reason == "unexpected end of data"
    return True


def clean_length(data: bytes, pieces: list[bytes]) -> tuple[int, int]:
    """Return how much of ``data`` is to be shown, and where the piece of what is held back begins.

    ``data`` ends with ``pieces``. What is held back is an incomplete character at the end, from the piece
    that opens it on; and before that, a character that this piece goes on with.
    """
    tail = len(incomplete_tail(data))
    if not tail:
        return len(data), len(data)
    held = 0
    for piece in reversed(pieces):
        held += len(piece)
        if held >= tail:
            break
    opening = max(len(data) - held, 0)
    # The held token may also finish, or break, a character that was open before it. Finished: that
    # character is held too. Broken: its bytes are known to be lost, and must not be held for ever.
    before = incomplete_tail(data[:opening])
    if before and not continues(before, data[opening:]):
        return opening, opening
    return opening - len(before), opening


def decode_broken(data: bytes, bytewise: bool) -> str:
    """Decode with U+FFFD for broken bytes: one for each byte, or one for each broken sequence."""
    if bytewise:
        return data.decode("utf-8", "surrogateescape").translate(_ESCAPES)
    return data.decode("utf-8", "replace")
