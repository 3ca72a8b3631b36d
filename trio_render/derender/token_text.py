"""What a single token shows in logprobs: its text where it has one, after the tokens sampled before it.

A token that is only part of a character shows nothing until the token that completes the character,
which then shows all of it. Source: vLLM 0.33 ``LogprobsProcessor`` with its U+FFFD correction.
"""

from __future__ import annotations

from ..model.token_table import TokenTable, whole_text
from .detokenize import incomplete_tail

__all__ = ["HELD_BYTES", "token_text"]

HELD_BYTES = 64
"""More than any token that opens a character is long; bounds what broken output can make us hold."""


def token_text(table: TokenTable, token_id: int, held: bytes) -> tuple[str, bytes]:
    """Return a token's text, and the bytes held back after it.

    Args:
        held: bytes of the sampled tokens before it that are part of an unfinished character, with what
            else the token that opens it carries; empty where the text before is complete.
    """
    value = table.byte_values[token_id]
    text = whole_text(value)
    if text is not None:
        return text, b""
    data = held + value
    try:
        return data.decode(), b""
    except UnicodeDecodeError:
        if incomplete_tail(data):
            return "", data[-HELD_BYTES:]
        shown = data.decode("utf-8", "replace")
        return ("" if shown.endswith("\ufffd") else shown), b""
