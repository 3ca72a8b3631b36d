"""Text <-> token ids. The only place that calls the tokenizer packages.

Nothing here is ever set on a tokenizer after loading: truncation and padding setters of a shared
tokenizer change other threads' results (tokenizers 0.22 raises "Already borrowed", 0.23 truncates them
silently). Truncation slices ids. Every encode used lets go of the GIL.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import fastokens
import tokenizers

from ..errors import InvalidRequest, ModelLoadError
from .text_bound import TextBound
from .token_table import TokenTable, decoder_rules

__all__ = ["SEGMENT_CACHE_BYTES", "SegmentCacheStatistics", "Tokenizer"]

SEGMENT_CACHE_BYTES = 32 * 1024 * 1024
"""Default bound of the cache: some 13,000 segments of a conversation, its text and ids."""

_HARD_TEXTS = (
    "",
    " ",
    "\n",
    "Hello world",
    "  two  spaces \t and\ttabs\r\n\n\n end  ",
    "I'm WE'LL y'all'd've O'Neil\u2019s",
    "0 12 123 1234567890 3.14 1,000 \u0663\u0664 \u2460 \u2163",
    "caf\u00e9 cafe\u0301 o\u0302\u0323 \u212b \ufb01 \uac00\u1100\u1161",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8",
    "\ud55c\uad6d\uc5b4 \u0645\u0631\u062d\u0628\u0627",
    "\u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd",
    "\u0e44\u0e17\u0e22 \u2764\ufe0f \U0001d518",
    "a\x00b\x1b[31m\x7f\x85\u00a0\u2003\u200b\ufeff\u2028x",
    "\u2581x \u0120y \u010az \ufffd \ufffe <0x0A>",
    "def f(x):\n    return x**2  # \u00e9\n\n\tif (a&&b){c++;}\n",
    "https://example.org/a/b?c=d&e=%C3%A9#f <b>&amp;</b> \\n \\u00e9",
    "HTTPServerError getXMLHttpRequest snake_case --- === *** ...!!!???",
    "supercalifragilisticexpialidocious" * 3 + "x" * 70 + " " * 70 + "-" * 70,
    "".join(map(chr, range(0x20, 0x250))),
)


@dataclass(frozen=True, slots=True)
class SegmentCacheStatistics:
    """The segment cache: look-ups since the start, the bytes of text they were for, and what it holds now."""

    hits: int
    misses: int
    hit_bytes: int
    miss_bytes: int
    entries: int
    bytes: int
    max_bytes: int


class Tokenizer:
    """An immutable tokenizer, safe to use from many threads.

    Encodes with ``fastokens`` where it supports the tokenizer and agrees with ``tokenizers`` on a set of
    hard texts, checked here at load; otherwise, and for offsets, with ``tokenizers``.

    The text between added tokens is encoded apart from theirs, so what it became can be used again: the next
    turn of a conversation costs its new text, and a copy of the ids. ``fastokens`` keeps such segments up to
    ``segment_cache_bytes``, for all threads; 0: none.

    Attributes:
        table: id -> bytes.
        bound: a floor under the number of tokens of a text.
        vocab_size: ids at or above it are refused. The embedding's size, which may exceed the tokenizer's.
        added_tokens: texts of the tokens that the vocabulary was extended by.
    """

    def __init__(
        self,
        tokenizer_json: str,
        extra_special: Sequence[str],
        vocab_size: int,
        segment_cache_bytes: int = SEGMENT_CACHE_BYTES,
    ) -> None:
        with _opening_fast(tokenizer_json) as opened:
            exact = _opened_exact(tokenizer_json)
            spec = _spec_without_vocabulary(exact)
            added = exact.get_added_tokens_decoder()
            special = {i for i, token in added.items() if token.special}
            special.update(i for i in map(exact.token_to_id, extra_special) if i is not None)
            size = max(exact.get_vocab_size(with_added_tokens=True), *(i + 1 for i in added), 1)
            self._exact = exact
            self.vocab_size = max(vocab_size, size)
            self.table = TokenTable(
                [exact.id_to_token(i) for i in range(size)],
                decoder_rules(spec["decoder"]),
                frozenset(special),
                self.vocab_size,
            )
            strips = any(token.lstrip or token.rstrip for token in added.values())
            self.bound = TextBound.of(self.table, spec, strips)
            self._prefix, self._suffix = _template_ids(exact)
        self.added_tokens = tuple(token.content for token in added.values())
        self._fast = opened[0] if opened and _agree(opened[0], exact, self.added_tokens) else None
        if self._fast is not None:
            # After the comparison, and always: the environment may have turned one on.
            self._fast.enable_segment_cache(segment_cache_bytes)

    @property
    def encoder(self) -> str:
        """Name of the package that encodes: ``fastokens`` or ``tokenizers``."""
        return "tokenizers" if self._fast is None else "fastokens"

    @property
    def segment_cache(self) -> SegmentCacheStatistics | None:
        """What the segment cache has done; ``None`` where there is none."""
        found = None if self._fast is None else self._fast.segment_cache_stats()
        return None if found is None else SegmentCacheStatistics(**found)

    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a vocabulary piece, or ``None``."""
        token_id: int | None = self._exact.token_to_id(piece)
        return token_id

    def special_affixes(self, add_special_tokens: bool) -> tuple[list[int], list[int]]:
        """Return the ids that the tokenizer's own rule puts before and after a text."""
        return (self._prefix, self._suffix) if add_special_tokens else ([], [])

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text`` without special tokens around it, in a list of the caller's own.

        Markers inside it become theirs.

        Raises:
            InvalidRequest: ``text`` holds a lone surrogate.
        """
        try:
            if self._fast is not None:
                # It refuses bytes that have no token, which the other drops.
                with suppress(ValueError):
                    return cast("list[int]", self._fast.encode(text).ids)
            return self._exact.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except (UnicodeEncodeError, TypeError):
            raise InvalidRequest("The text is not valid Unicode: it holds a lone surrogate.") from None

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return ids and, for each, ``(start, end)`` in characters of ``text``. Slower than `encode`."""
        try:
            encoding = self._exact.encode_batch([text], add_special_tokens=False)[0]
        except (UnicodeEncodeError, TypeError):
            raise InvalidRequest("The text is not valid Unicode: it holds a lone surrogate.") from None
        return list(encoding.ids), list(encoding.offsets)

    def as_json(self) -> str:
        """Return what ``tokenizer.json`` would hold. Megabytes, written under the GIL: for loading, once."""
        written: str = self._exact.to_str()
        return written

    def piece(self, token_id: int) -> str:
        """Return the vocabulary's own spelling of an id (``Ġworld``); empty for ids it doesn't know."""
        piece: str | None = self._exact.id_to_token(token_id)
        return piece or ""


def _opened_exact(tokenizer_json: str) -> tokenizers.Tokenizer:
    try:
        exact = tokenizers.Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # the package raises bare Exception
        raise ModelLoadError(f"The tokenizer can't be read: {error}.") from error
    exact.no_truncation()
    exact.no_padding()
    return exact


@contextmanager
def _opening_fast(tokenizer_json: str) -> Iterator[list[Any]]:
    """Open the tokenizer with ``fastokens`` beside the block; after it, the list holds it, or is empty.

    It takes a second for 129,000 tokens and lets go of the GIL, so a thread of its own, joined here,
    saves that second a third.
    """
    opened: list[Any] = []

    def open_() -> None:
        # What it doesn't support is a reason to do without it, whatever it raises.
        with suppress(Exception):
            fast = fastokens.Tokenizer.from_json_str(tokenizer_json)
            fast.no_truncation()
            fast.no_padding()
            opened.append(fast)

    thread = threading.Thread(target=open_, name="trio_render-open-fastokens")
    thread.start()
    try:
        yield opened
    finally:
        thread.join()


def _agree(fast: Any, exact: tokenizers.Tokenizer, markers: Sequence[str]) -> bool:
    """Say whether the two encode hard texts, and texts with this vocabulary's markers, to the same ids."""
    some = markers[:64]
    texts = [
        *_HARD_TEXTS,
        *(f"{marker}a {marker} b\n{marker}" for marker in some),
        "".join(some),
        *(marker[:-1] for marker in some[:8]),
    ]
    wanted = exact.encode_batch_fast(texts, add_special_tokens=False)
    return all(list(fast.encode(text).ids) == list(ids.ids) for text, ids in zip(texts, wanted, strict=True))


def _spec_without_vocabulary(exact: tokenizers.Tokenizer) -> dict[str, Any]:
    """Return the other parts as data. Pickling one gives its JSON without the vocabulary's."""

    def of(part: Any) -> dict[str, Any] | None:
        return None if part is None else json.loads(part.__getstate__())

    return {
        "decoder": of(exact.decoder),
        "normalizer": of(exact.normalizer),
        "pre_tokenizer": of(exact.pre_tokenizer),
    }


def _template_ids(exact: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids that the post-processor puts before and after a text."""
    text = "a b"
    bare = exact.encode(text, add_special_tokens=False).ids
    full = exact.encode(text, add_special_tokens=True).ids
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return full[:start], full[start + len(bare) :]
    raise ModelLoadError("The tokenizer's post-processor changes more than the ends of a text.")
