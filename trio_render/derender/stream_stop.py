"""Stop strings of a stream: text is held back as long as it may become one, and no longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import InvalidRequest
from ..model.token_table import TokenTable
from .stop import StopRules, StringStop, find_stop_string
from .stream_state import MAX_STOP_CHARS
from .stream_text import TextState, next_text

__all__ = ["check_stop_lengths", "find_in_chunk", "held_length"]


def check_stop_lengths(rules: StopRules) -> None:
    """Raise `InvalidRequest` (``stop``) for a stop string that is too long to be held back."""
    if any(len(string) > MAX_STOP_CHARS for string in rules.strings):
        raise InvalidRequest(f"In a stream a stop string has at most {MAX_STOP_CHARS} characters.", "stop")


def find_in_chunk(
    table: TokenTable,
    rules: StopRules,
    strings: Sequence[str],
    before: TextState,
    held_text: str,
    text: str,
    token_ids: Sequence[int],
    free_tokens: int,
) -> StringStop | None:
    """Return the stop string that ends ``held_text + text`` as `find_stop_string` would in the whole text.

    Args:
        before: the text's state before ``token_ids``, which bring ``text``.
        free_tokens: how many of the tokens are still within ``min_tokens``, and don't stop.
    """
    known = len(held_text)
    whole = held_text + text
    # Most chunks end here; only a match asks which token brought what.
    if all(whole.find(string, max(known - len(string) + 1, 0)) < 0 for string in strings):
        return None
    lengths = [known]
    state = before
    for token_id in token_ids:
        piece, state = next_text(table, state, (token_id,), skip_special_tokens=rules.skip_special_tokens)
        lengths.append(lengths[-1] + len(piece))
    return find_stop_string(
        whole,
        strings,
        included=rules.included,
        start=lengths[min(max(free_tokens, 0), len(token_ids))],
        n_tokens=len(token_ids),
        length_after=lengths.__getitem__,
    )


def held_length(text: str, strings: Sequence[str], checkpoint: Callable[[], None]) -> int:
    """Return the length of the longest end of ``text`` that begins a stop string, and is not all of it."""
    if not text:
        return 0
    last = text[-1]
    longest = 0
    for string in strings:
        checkpoint()
        end = string.rfind(last, longest, min(len(string) - 1, len(text)))
        while end >= longest:
            if text.endswith(string[: end + 1]):
                longest = end + 1
                break
            end = string.rfind(last, longest, end)
    return longest
