"""All that is kept of a streamed choice between two of its chunks: small, bounded, and plain data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import msgspec

from ..model.loading import Model
from ..parsing.state import ParserState
from .detokenize import incomplete_tail, seed_from_prompt
from .stream_text import TextState, text_start
from .token_text import HELD_BYTES

__all__ = ["MAX_STOP_CHARS", "StreamState", "ended_state", "new_state", "start_behind"]

MAX_STOP_CHARS = 4096
"""Longest stop string of a stream: the text that is held back for it travels with the state."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_MaybeId = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]


class StreamState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A choice's stream so far.

    Attributes:
        index: the choice's; -1 before its first chunk.
        created: Unix seconds, the same in all its chunks.
        ended: a stop string was found; nothing more is shown.
        n_tokens: tokens so far, up to what ``min_tokens`` needs.
        held_id: a last token that would be a stop token if the stream ended with it; -1: none.
        text: see `TextState`.
        held_text: end of the text that may become a stop string. Not shown yet, unless stop strings are
            included in the output.
        place_held, offset: the place of the next token's logprobs; see `Place`.
        parser: where the parsers stand, in a chat whose prompt is known, if there are any.
    """

    index: _MaybeId
    created: _Count
    ended: bool
    n_tokens: _Count
    held_id: _MaybeId
    text: TextState
    held_text: Annotated[str, msgspec.Meta(max_length=MAX_STOP_CHARS - 1)]
    place_held: Annotated[bytes, msgspec.Meta(max_length=HELD_BYTES)]
    offset: _Count
    parser: ParserState | None = None

    @property
    def started(self) -> bool:
        """Whether a chunk of the choice has been answered."""
        return self.index >= 0

    def fits(self, model: Model) -> bool:
        """Say whether some stream of this model can have left this state, as far as fields tell."""
        table = model.tokenizer.table
        if self.held_id >= model.vocab_size or not self.text.fits(table):
            return False
        return not self.place_held or bool(incomplete_tail(self.place_held))


def new_state(model: Model) -> StreamState:
    """Return the state before the first chunk, without a prompt."""
    text = text_start(model.tokenizer.table)
    return StreamState(-1, int(time.time()), False, 0, -1, text, "", b"", 0)


def ended_state(state: StreamState, index: int) -> StreamState:
    """Return the state of a choice in which nothing more is shown."""
    return StreamState(index, state.created, True, 0, -1, TextState(False, b"", b"", 0), "", b"", 0)


def start_behind(
    model: Model, state: StreamState, prompt_ids: Sequence[int] | None, *, skip_special_tokens: bool
) -> StreamState:
    """Return a state that has not started yet behind ``prompt_ids``, or their tail; others as they are."""
    if state.started or not prompt_ids:
        return state
    table = model.tokenizer.table
    seed = seed_from_prompt(table, prompt_ids, skip_special_tokens=skip_special_tokens)
    return msgspec.structs.replace(state, text=text_start(table, seed))
