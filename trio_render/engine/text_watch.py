"""Finds texts in an output as its tokens come, as stop strings and the marks of reasoning are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ..derender.detokenize import START, Seed
from ..derender.stream_text import next_text, text_start
from ..model.token_table import TokenTable

__all__ = ["TextWatch"]


@final
class TextWatch:
    """Says with which token the first of some texts is complete. A token costs what it brings, no more.

    Args:
        texts: none of them empty. Of those that one token completes the first counts.
        free_tokens: what so many tokens at the start complete doesn't count.
    """

    def __init__(
        self,
        table: TokenTable,
        texts: Sequence[str],
        *,
        skip_special_tokens: bool,
        seed: Seed = START,
        free_tokens: int = 0,
    ) -> None:
        self._table = table
        self._texts = texts
        self._skip = skip_special_tokens
        self._state = text_start(table, seed)
        self._free = free_tokens
        self._kept = max(map(len, texts), default=1) - 1
        self._tail = ""

    def take(self, token_id: int) -> str | None:
        """Return the text that this token completes, if there is one."""
        piece, self._state = next_text(self._table, self._state, (token_id,), skip_special_tokens=self._skip)
        seen = self._tail + piece
        known = len(self._tail)
        self._tail = seen[max(len(seen) - self._kept, 0) :] if self._kept else ""
        if self._free > 0:
            self._free -= 1
            return None
        for text in self._texts:
            if seen.find(text, max(known - len(text) + 1, 0)) >= 0:
                return text
        return None
