"""Ids of tool calls, in the style that a family's template takes back."""

from __future__ import annotations

import secrets
import string

from .grammar import IdStyle

__all__ = ["call_id"]

_ALPHABET = string.ascii_letters + string.digits


def call_id(style: IdStyle, written: str | None) -> str:
    """Return the id that the output itself has written, or a new one.

    Source: vLLM 0.33: ``chatcmpl-tool-`` and 16 hex digits; for Mistral nine letters or digits.
    """
    if written is not None:
        return written
    if style == "nine":
        return "".join(secrets.choice(_ALPHABET) for _ in range(9))
    return f"chatcmpl-tool-{secrets.token_hex(8)}"
