"""The next tokens of one choice -> what they show, and what stops it. Shared by both kinds of streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..model.loading import Model
from ..protocol.stream import ChunkChoice
from .logprobs import Place
from .stop import StopRules, stop_token
from .stream_state import StreamState, ended_state
from .stream_stop import find_in_chunk, held_length
from .stream_text import next_text

__all__ = ["Shown", "next_shown"]


class Shown(NamedTuple):
    """What a chunk shows of a choice, but for its logprobs."""

    text: str
    finish_reason: str | None
    stop_reason: int | str | None


def next_shown(
    model: Model,
    rules: StopRules,
    state: StreamState,
    choice: ChunkChoice,
    place: Place,
    checkpoint: Callable[[], None],
) -> tuple[Shown, StreamState]:
    """Return what ``choice`` shows after ``state``, and the state behind it, where ``place`` is already.

    Joined over a stream that finishes with ``stop``, the texts are `choice_text` of all its tokens. A stop
    string finishes the choice in the chunk that completes it, whatever the engine says later; only where
    the engine itself has finished with another reason by then, it stays part of the text.
    """
    ids, held_id, token_reason = _tokens(rules, state, choice)
    table = model.tokenizer.table
    text, text_state = next_text(table, state.text, ids, skip_special_tokens=rules.skip_special_tokens)
    finish = choice.finish_reason
    reason = choice.stop_reason if choice.stop_reason is not None else token_reason
    strings = _strings(rules, choice)
    held = state.held_text
    if strings or held:
        free = rules.min_tokens - state.n_tokens
        found = find_in_chunk(table, rules, strings, state.text, held, text, ids, free)
        text = held + text
        shown_before = len(held) if rules.included else 0
        if found is not None:
            shown = Shown(text[shown_before : found.end], finish or "stop", found.string)
            return shown, ended_state(state, choice.index)
        length = held_length(text, strings, checkpoint) if finish is None else 0
        held = text[len(text) - length :]
        text = text[shown_before : len(text) if rules.included else len(text) - length]
    return Shown(text, finish, reason), StreamState(
        index=choice.index,
        created=state.created,
        ended=False,
        n_tokens=min(state.n_tokens + len(ids), max(rules.min_tokens, 0)),
        held_id=held_id,
        text=text_state,
        held_text=held,
        place_held=place.held,
        offset=place.offset,
    )


def _tokens(
    rules: StopRules, state: StreamState, choice: ChunkChoice
) -> tuple[Sequence[int], int, int | None]:
    """Return the tokens that are text, one held back (or -1), and the stop reason that the last one is."""
    ids = choice.token_ids or []
    if state.held_id >= 0:
        ids = [state.held_id, *ids]
    stopped, reason = stop_token(rules, choice, ids)
    if stopped:
        return ids if rules.included else ids[:-1], -1, reason
    if ids and choice.finish_reason is None and (ids[-1] in rules.eos_ids or ids[-1] in rules.token_ids):
        # If the stream ends without another token, it is what stopped it.
        return ids[:-1], ids[-1], None
    return ids, -1, None


def _strings(rules: StopRules, choice: ChunkChoice) -> tuple[str, ...]:
    """Return the stop strings to look for; what the engine says it stopped at counts before all others."""
    if choice.finish_reason is None:
        return rules.strings
    if choice.finish_reason != "stop":
        return ()
    if isinstance(choice.stop_reason, str):
        return (choice.stop_reason,) if choice.stop_reason else ()
    return rules.strings
