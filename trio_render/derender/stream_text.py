"""Token ids -> text, chunk by chunk: joined, exactly what `detokenize` makes of all ids at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from ..model.token_table import TokenTable
from .detokenize import (
    START,
    Seed,
    clean_length,
    continues,
    decode_broken,
    incomplete_tail,
    is_incomplete,
    strip_first_space,
)

__all__ = ["TextState", "next_text", "text_start"]

_OPEN_BYTES = 3
"""The most bytes of a character that is still incomplete."""


class TextState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """How far a text is decoded.

    Attributes:
        strips: the first space is still to be dropped.
        pending: bytes of a character that the prompt's end cuts, while nothing says how it goes on.
        held: bytes of the output that are held back.
        opening: where in ``held`` the token begins that opens the incomplete character at its end.
    """

    strips: bool
    pending: Annotated[bytes, msgspec.Meta(max_length=_OPEN_BYTES)]
    held: bytes
    opening: Annotated[int, msgspec.Meta(ge=0, le=_OPEN_BYTES)]

    def fits(self, table: TokenTable) -> bool:
        """Say whether some output of this vocabulary can have left this state."""
        if self.pending and not is_incomplete(self.pending):
            return False
        if not self.held:
            return not self.opening
        # A character left open before, the token that opens the next one, and more bytes of that.
        most = _OPEN_BYTES + table.longest + _OPEN_BYTES
        if len(self.held) > most or self.opening >= len(self.held):
            return False
        return bool(incomplete_tail(self.pending + self.held))


def text_start(table: TokenTable, seed: Seed = START) -> TextState:
    """Return the state at the start of an output; ``seed`` as for `detokenize`."""
    return TextState(seed.at_start and table.rules.strips_first_space, seed.pending, b"", 0)


_CLEAN = TextState(False, b"", b"", 0)


def next_text(
    table: TokenTable, state: TextState, token_ids: Sequence[int], *, skip_special_tokens: bool
) -> tuple[str, TextState]:
    """Return what ``token_ids`` add to the text, and the state behind them.

    Costs what the chunk costs, whatever came before. What an incomplete end holds back is never shown
    unless it is completed, or known to be broken.
    """
    values = table.byte_values
    special = table.special_ids if skip_special_tokens else ()
    pieces = [values[i] for i in token_ids if i not in special]
    strips = state.strips and not strip_first_space(pieces)
    data = state.held + b"".join(pieces)
    pending = state.pending
    if pending:
        if not continues(pending, data):
            pending = b""
        elif is_incomplete(pending + data):
            return "", TextState(strips, pending, data, 0)
        else:
            data = pending + data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        if not pending:
            pieces = [state.held[: state.opening], state.held[state.opening :], *pieces]
        clean, opening = clean_length(data, pieces)
        bytewise = table.rules.byte_fallback
        text = decode_broken(data[:clean], bytewise)
        covered = 0 if bytewise else _covered(data, clean)
        return text, TextState(strips, b"", data[clean + covered :], opening - clean)
    return text, TextState(True, b"", b"", 0) if strips else _CLEAN


def _covered(data: bytes, clean: int) -> int:
    """Return how many bytes behind ``clean`` belong to a broken sequence that is shown before it."""
    before = len(incomplete_tail(data[:clean]))
    if not before:
        return 0
    try:
        data[clean - before :].decode()
    except UnicodeDecodeError as error:
        return error.end - before
    return 0
