"""Logprobs of an answer: ids -> texts and bytes, in OpenAI's two formats, written as JSON fragments.

Each token's fragment is prepared once per id; a derender of 4,000 tokens with 20 candidates each is then
mostly joins. `checkpoint` is called once per place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..errors import InvalidRequest, MalformedRequest
from ..model.fragments import FragmentCache, chat_fragment
from ..model.loading import Model
from ..protocol.logprobs import Candidate, TokenLogprob
from .token_text import token_text

__all__ = ["Place", "chat_logprobs", "completion_logprobs"]

_encode = msgspec.json.encode
_PLACEHOLDER = "token_id:"
_MAX_ID_DIGITS = 19
_BATCH = 32
"""Places between two checkpoints: with 20 candidates each, well under a millisecond."""


class Place:
    """A place in an output, at which entries are resolved in order.

    Attributes:
        held: see `token_text`.
        offset: characters of token texts before it. Completions count them, chats don't.
    """

    __slots__ = ("_model", "held", "offset")

    def __init__(self, model: Model, held: bytes = b"", offset: int = 0) -> None:
        self._model = model
        self.held = held
        self.offset = offset

    def text(self, entry: Candidate | TokenLogprob) -> str:
        """Return an entry's text in this place."""
        token_id = _token_id(entry, self._model)
        if token_id is None:
            return entry.token or ""
        return token_text(self._model.tokenizer.table, token_id, self.held)[0]

    def fragment(self, cache: FragmentCache, entry: Candidate | TokenLogprob) -> bytes:
        """Return an entry's chat JSON up to its value."""
        token_id = _token_id(entry, self._model)
        if token_id is not None and token_id not in cache.chat:
            cache.add_chat(token_id)
        return cache.chat.get(token_id) or chat_fragment(self.text(entry))

    def advance(self, entry: TokenLogprob) -> None:
        """Move behind the sampled token ``entry``."""
        token_id = _token_id(entry, self._model)
        table = self._model.tokenizer.table
        self.held = b"" if token_id is None else token_text(table, token_id, self.held)[1]

    def skip(self, token_ids: Sequence[int]) -> None:
        """Move behind sampled tokens that have no entries. Counts their characters."""
        table = self._model.tokenizer.table
        if not self.held:
            with suppress(UnicodeDecodeError):
                self.offset += len(b"".join([table.byte_values[i] for i in token_ids]).decode())
                return
        for token_id in token_ids:
            text, self.held = token_text(table, token_id, self.held)
            self.offset += len(text)


def _token_id(entry: Candidate | TokenLogprob, model: Model) -> int | None:
    """Return an entry's id; ``None`` where it carries a text instead."""
    token_id = entry.token_id
    if token_id is None:
        token = entry.token
        if token is None:
            raise MalformedRequest("A logprob needs a token_id or a token.", "body.logprobs")
        digits = token.removeprefix(_PLACEHOLDER)
        if digits == token or not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_ID_DIGITS):
            return None
        token_id = int(digits)
    if not 0 <= token_id < model.vocab_size:
        raise InvalidRequest(f"Token ids in logprobs must be in 0 to {model.vocab_size - 1}.", "logprobs")
    return token_id


def _check_finite(value: float | None) -> None:
    if value is not None and not math.isfinite(value):
        raise InvalidRequest("A logprob must be a finite number.", "logprobs")


def chat_logprobs(
    model: Model,
    cache: FragmentCache,
    content: Sequence[TokenLogprob],
    n_candidates: int | None,
    checkpoint: Callable[[], None],
    place: Place | None = None,
) -> msgspec.Raw:
    """Return ``{"content": [...]}``, one entry per place.

    Args:
        n_candidates: candidates kept of each place, in the order given; ``None`` keeps all.
        place: of the first entry, and afterwards behind the last; by default the output's start.

    Raises:
        InvalidRequest: an id outside the vocabulary, a logprob that is not finite.
    """
    place = place or Place(model)
    batches: list[bytes] = []
    for start in range(0, len(content), _BATCH):
        checkpoint()
        batches.append(_chat_batch(place, cache, content[start : start + _BATCH], n_candidates))
    return msgspec.Raw(b'{"content":[' + b",".join(batches) + b"]}")


def _chat_batch(
    place: Place, cache: FragmentCache, batch: Sequence[TokenLogprob], n_candidates: int | None
) -> bytes:
    """Return the JSON of some places, with commas between them.

    One pass over all entries at a time, each in C: an answer of 4,000 places has 24,000 entries and more.
    """
    entries: list[TokenLogprob | Candidate] = []
    starts: list[int] = []
    following: list[bytes] = []
    for entry in batch:
        kept = entry.top_logprobs if n_candidates is None else entry.top_logprobs[:n_candidates]
        starts.append(len(entries))
        entries.append(entry)
        entries += kept
        if kept:
            following += [b',"top_logprobs":[', *[b"},"] * (len(kept) - 1), b"}]},"]
        else:
            following.append(b',"top_logprobs":[]},')
    fragments = list(map(cache.chat.get, [entry.token_id for entry in entries]))
    if place.held or None in fragments:
        for entry, start, end in zip(batch, starts, [*starts[1:], len(entries)], strict=True):
            if None in fragments[start:end]:
                for index in range(start, end):
                    if fragments[index] is None:
                        fragments[index] = place.fragment(cache, entries[index])
            if place.held or entry.token_id not in cache.chat:
                place.advance(entry)
    pieces: list[Any] = fragments * 3
    pieces[0::3] = fragments
    pieces[1::3] = _numbers([entry.logprob for entry in entries])
    pieces[2::3] = following
    return b"".join(pieces)[:-1]


def _numbers(values: list[float | None]) -> list[bytes]:
    """Return the JSON of each value. One call for many: writing floats is a third of all the work."""
    texts = _encode(values)
    if b"null" in texts and texts.count(b"null") != values.count(None):
        raise InvalidRequest("A logprob must be a finite number.", "logprobs")
    return texts[1:-1].split(b",")


def completion_logprobs(
    model: Model,
    content: Sequence[TokenLogprob],
    n_candidates: int | None,
    checkpoint: Callable[[], None],
    place: Place | None = None,
) -> msgspec.Raw:
    """Return the four lists of a completion's logprobs, one entry per place.

    ``text_offset`` counts characters of the token texts, from ``place`` on (see `chat_logprobs`). Of
    candidates that show the same text the most likely stays. The sampled token is kept beside
    ``n_candidates`` others.

    Raises:
        InvalidRequest: an id outside the vocabulary, a logprob that is not finite.
    """
    place = place or Place(model)
    rows = None if n_candidates is None else n_candidates + 1
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for entry in content:
        checkpoint()
        text = place.text(entry)
        _check_finite(entry.logprob)
        lists["tokens"].append(text)
        lists["token_logprobs"].append(entry.logprob)
        lists["top_logprobs"].append(_best_by_text(place, entry.top_logprobs[:rows]))
        lists["text_offset"].append(place.offset)
        place.offset += len(text)
        place.advance(entry)
    return msgspec.Raw(_encode(lists))


def _value(logprob: float | None) -> float:
    return -math.inf if logprob is None else logprob


def _best_by_text(place: Place, candidates: Sequence[Candidate]) -> dict[str, float | None] | None:
    best: dict[str, float | None] = {}
    for candidate in candidates:
        _check_finite(candidate.logprob)
        text = place.text(candidate)
        if text not in best or _value(candidate.logprob) > _value(best[text]):
            best[text] = candidate.logprob
    return best or None
