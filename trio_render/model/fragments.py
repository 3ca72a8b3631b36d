"""JSON that is the same each time a token appears, made once per token."""

from __future__ import annotations

import msgspec

from .token_table import TokenTable, whole_text

__all__ = ["FragmentCache", "chat_fragment"]

_encode = msgspec.json.encode


class FragmentCache:
    """Id -> the JSON of a chat logprob entry up to its value. Filled on use, bounded by the vocabulary.

    Holds only tokens that are a whole text by themselves: others depend on the tokens before them. Shared
    by threads: two may make one fragment twice, which is harmless.
    """

    __slots__ = ("_table", "chat")

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self.chat: dict[int | None, bytes] = {}

    def add_chat(self, token_id: int) -> None:
        """Fill in the fragment of a valid id, if it can have one."""
        text = whole_text(self._table.byte_values[token_id])
        if text is not None:
            self.chat[token_id] = chat_fragment(text)


def chat_fragment(text: str) -> bytes:
    """Return the JSON of a chat logprob entry up to its value: ``{"token":…,"bytes":…,"logprob":``."""
    return b'{"token":%b,"bytes":%b,"logprob":' % (_encode(text), _encode(list(text.encode())))
