"""Text <-> token ids. The only place that calls the tokenizer packages.

Nothing here is ever set on a tokenizer after loading: truncation and padding setters of a shared
tokenizer change other threads' results (tokenizers 0.22 raises "Already borrowed", 0.23 truncates them
silently). Truncation slices ids. Every encode used lets go of the GIL.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import fastokens
import tokenizers

from ..errors import InvalidRequest, ModelLoadError
from .offsets import offsets, spells_texts
from .text_bound import TextBound
from .token_table import TokenTable, decoder_rules

__all__ = ["SEGMENT_CACHE_BYTES", "SegmentCacheStatistics", "Tokenizer"]

SEGMENT_CACHE_BYTES = 32 * 1024 * 1024
"""Default bound of the cache: some 13,000 segments of a conversation, its text and ids."""

_SURROGATE = "The text is not valid Unicode: it holds a lone surrogate."
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
    hard texts, checked here at load; otherwise with ``tokenizers``. That one takes tens of megabytes, and is
    let go of at the end of loading where nothing will be asked of it: where the bytes of a text's ids are
    the text's, as in most byte-level vocabularies, they tell the offsets, too.

    The text between added tokens is encoded apart from theirs, so what it became can be used again: the next
    turn of a conversation costs its new text, and a copy of the ids. ``fastokens`` keeps such segments up to
    ``segment_cache_bytes``, for all threads; 0: none.

    Args:
        tokenizer_json: what ``tokenizer.json`` holds.
        extra_special: texts of more special tokens.
        vocab_size: of the embedding.
        segment_cache_bytes: bound of the cache.
        reread: reads ``tokenizer_json`` again; ``None``: there is nothing to read it from.

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
        reread: Callable[[], str] | None = None,
    ) -> None:
        with _opening_fast(tokenizer_json) as opened:
            exact, is_plain = _opened_exact(tokenizer_json)
            spec = _spec_without_vocabulary(exact)
            added = exact.get_added_tokens_decoder()
            special = {i for i, token in added.items() if token.special}
            special.update(i for i in map(exact.token_to_id, extra_special) if i is not None)
            size = max(exact.get_vocab_size(with_added_tokens=True), *(i + 1 for i in added), 1)
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
            # While the other one opens still.
            compared = _encoded_hard_texts(exact, self.added_tokens)
            spells = spells_texts(spec, exact.model, added, self.table)
        self._fast = opened[0] if opened and _agree(opened[0], compared) else None
        self._exact: Any = exact
        self._vocabulary: Any = exact
        self._json: Callable[[], str] = exact.to_str
        if (
            self._fast is not None
            and reread is not None
            and is_plain
            and spells
            and _know_alike(self._fast, exact, added)
            and _tells_offsets(self._fast, self.table, compared)
        ):
            self._exact, self._vocabulary, self._json = None, self._fast, reread
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

    @property
    def keeps_exact(self) -> bool:
        """Whether ``tokenizers`` stays open, for what the ids' bytes can't tell."""
        return self._exact is not None

    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a vocabulary piece, or ``None``."""
        token_id: int | None = self._vocabulary.token_to_id(piece)
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
            if self._fast is None:
                return self._encode_exactly(text)
            return cast("list[int]", self._fast.encode(text).ids)
        except (UnicodeEncodeError, TypeError):
            raise InvalidRequest(_SURROGATE) from None
        except ValueError:
            # It refuses bytes that have no token, which the other drops. Without the other, all have one.
            if self._exact is None:
                raise
            return self._encode_exactly(text)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return ids and, for each, ``(start, end)`` in characters of ``text``. Slower than `encode`.

        Raises:
            InvalidRequest: ``text`` holds a lone surrogate.
        """
        if self._exact is None:
            ids = self.encode(text)
            return ids, offsets(self.table, ids, text)
        try:
            encoding = self._exact.encode_batch([text], add_special_tokens=False)[0]
        except (UnicodeEncodeError, TypeError):
            raise InvalidRequest(_SURROGATE) from None
        return list(encoding.ids), list(encoding.offsets)

    def as_json(self) -> str:
        """Return what ``tokenizer.json`` holds. Megabytes, read or written under the GIL: for loading, once.

        Raises:
            ModelLoadError: it can't be read again, or has changed.
        """
        return self._json()

    def piece(self, token_id: int) -> str:
        """Return the vocabulary's own spelling of an id (``Ġworld``); empty for ids it doesn't know."""
        piece: str | None = self._vocabulary.id_to_token(token_id)
        return piece or ""

    def _encode_exactly(self, text: str) -> list[int]:
        return cast("list[int]", self._exact.encode_batch_fast([text], add_special_tokens=False)[0].ids)


def _opened_exact(tokenizer_json: str) -> tuple[tokenizers.Tokenizer, bool]:
    """Open the tokenizer with ``tokenizers``; say also whether it came without truncation and padding."""
    try:
        exact = tokenizers.Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # the package raises bare Exception
        raise ModelLoadError(f"The tokenizer can't be read: {error}.") from error
    is_plain = exact.truncation is None and exact.padding is None
    exact.no_truncation()
    exact.no_padding()
    return exact, is_plain


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


def _encoded_hard_texts(exact: tokenizers.Tokenizer, markers: Sequence[str]) -> list[tuple[str, Any]]:
    """Return hard texts, and texts with this vocabulary's markers, with their encodings.

    Nothing, where there is one that can't be encoded.
    """
    some = markers[:64]
    texts = [
        *_HARD_TEXTS,
        *(f"{marker}a {marker} b\n{marker}" for marker in some),
        "".join(some),
        *(marker[:-1] for marker in some[:8]),
    ]
    with suppress(Exception):  # the package raises bare Exception
        return list(zip(texts, exact.encode_batch(texts, add_special_tokens=False), strict=True))
    return []


def _agree(fast: Any, compared: Sequence[tuple[str, Any]]) -> bool:
    """Say whether ``fast`` encodes texts to the same ids as the other package, or leaves them to it."""

    def agrees(text: str, ids: list[int]) -> bool:
        try:
            return bool(fast.encode(text).ids == ids)
        except ValueError:
            return True

    return bool(compared) and all(agrees(text, encoding.ids) for text, encoding in compared)


def _tells_offsets(fast: Any, table: TokenTable, compared: Sequence[tuple[str, Any]]) -> bool:
    """Say whether the bytes of the ids from ``fast`` tell the offsets that the other package found."""
    try:
        return all(
            offsets(table, fast.encode(text).ids, text) == encoding.offsets for text, encoding in compared
        )
    except ValueError:
        return False


def _know_alike(fast: Any, exact: tokenizers.Tokenizer, added: Mapping[int, Any]) -> bool:
    """Say whether the two have as many tokens, and the same added ones."""
    return bool(fast.vocab_size == exact.get_vocab_size(with_added_tokens=True)) and all(
        fast.id_to_token(i) == token.content and fast.token_to_id(token.content) == i
        for i, token in added.items()
    )


def _spec_without_vocabulary(exact: tokenizers.Tokenizer) -> dict[str, Any]:
    """Return the other parts as data. Pickling one gives its JSON without the vocabulary's."""

    def of(part: Any) -> dict[str, Any] | None:
        return None if part is None else json.loads(part.__getstate__())

    return {
        "decoder": of(exact.decoder),
        "normalizer": of(exact.normalizer),
        "pre_tokenizer": of(exact.pre_tokenizer),
        "post_processor": of(exact.post_processor),
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
