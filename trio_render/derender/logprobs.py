"""Logprobs of an answer: ids -> texts and bytes, in OpenAI's two formats, written as JSON fragments.

Each token's fragment is prepared once per id; a derender of 4,000 tokens with 20 candidates each is then
mostly joins. `checkpoint` is called once per place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..errors import InvalidRequest, MalformedRequest
from ..model.fragments import FragmentCache, chat_fragment
from ..model.loading import Model
from ..protocol.logprobs import Candidate, TokenLogprob
from .token_text import token_text

__all__ = ["chat_logprobs", "completion_logprobs"]

_encode = msgspec.json.encode
_PLACEHOLDER = "token_id:"
_MAX_ID_DIGITS = 19
_LOWEST, _HIGHEST = -math.inf, math.inf


class _Place:
    """Resolves the entries of one output, in order."""

    __slots__ = ("_held", "_model")

    def __init__(self, model: Model) -> None:
        self._model = model
        self._held = b""

    def text(self, entry: Candidate | TokenLogprob) -> str:
        """Return an entry's text in this place."""
        token_id = _token_id(entry, self._model)
        if token_id is None:
            return entry.token or ""
        return token_text(self._model.tokenizer.table, token_id, self._held)[0]

    def advance(self, entry: TokenLogprob) -> None:
        """Move behind the sampled token ``entry``."""
        token_id = _token_id(entry, self._model)
        table = self._model.tokenizer.table
        self._held = b"" if token_id is None else token_text(table, token_id, self._held)[1]


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


def _number(value: float | None) -> str:
    if value is None:
        return "null"
    if not math.isfinite(value):
        raise InvalidRequest("A logprob must be a finite number.", "logprobs")
    return repr(value)


def chat_logprobs(
    model: Model,
    cache: FragmentCache,
    content: Sequence[TokenLogprob],
    n_candidates: int | None,
    checkpoint: Callable[[], None],
) -> msgspec.Raw:
    """Return ``{"content": [...]}``, one entry per place.

    Args:
        n_candidates: candidates kept of each place, in the order given; ``None`` keeps all.

    Raises:
        InvalidRequest: an id outside the vocabulary, a logprob that is not finite.
    """
    place = _Place(model)
    known = cache.chat.get
    entries = []
    for entry in content:
        checkpoint()
        kept = entry.top_logprobs if n_candidates is None else entry.top_logprobs[:n_candidates]
        candidates = []
        for candidate in kept:
            # Nearly all work of a large answer is here: the common case makes no call of ours.
            fragment, value = known(candidate.token_id), candidate.logprob
            if fragment is None or value is None or not _LOWEST < value < _HIGHEST:
                candidates.append(_chat_entry(place, cache, candidate, model))
            else:
                candidates.append(f"{fragment}{value!r}")
        listed = "},".join(candidates) + "}" if candidates else ""
        entries.append(f'{_chat_entry(place, cache, entry, model)},"top_logprobs":[{listed}]}}')
        place.advance(entry)
    return msgspec.Raw(f'{{"content":[{",".join(entries)}]}}'.encode())


def _chat_entry(place: _Place, cache: FragmentCache, entry: Candidate | TokenLogprob, model: Model) -> str:
    """Return an entry's JSON but for its closing brace."""
    token_id = _token_id(entry, model)
    if token_id is not None and token_id not in cache.chat:
        cache.add_chat(token_id)
    fragment = cache.chat.get(token_id) or chat_fragment(place.text(entry))
    return fragment + _number(entry.logprob)


def completion_logprobs(
    model: Model,
    content: Sequence[TokenLogprob],
    n_candidates: int | None,
    checkpoint: Callable[[], None],
    first_offset: int = 0,
) -> msgspec.Raw:
    """Return the four lists of a completion's logprobs, one entry per place.

    ``text_offset`` counts characters of the token texts, from ``first_offset``. Of candidates that show
    the same text the most likely stays. The sampled token is kept beside ``n_candidates`` others.

    Raises:
        InvalidRequest: an id outside the vocabulary, a logprob that is not finite.
    """
    place = _Place(model)
    rows = None if n_candidates is None else n_candidates + 1
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    offset = first_offset
    for entry in content:
        checkpoint()
        text = place.text(entry)
        _number(entry.logprob)
        lists["tokens"].append(text)
        lists["token_logprobs"].append(entry.logprob)
        lists["top_logprobs"].append(_best_by_text(place, entry.top_logprobs[:rows]))
        lists["text_offset"].append(offset)
        offset += len(text)
        place.advance(entry)
    return msgspec.Raw(_encode(lists))


def _value(logprob: float | None) -> float:
    return -math.inf if logprob is None else logprob


def _best_by_text(place: _Place, candidates: Sequence[Candidate]) -> dict[str, float | None] | None:
    best: dict[str, float | None] = {}
    for candidate in candidates:
        _number(candidate.logprob)
        text = place.text(candidate)
        if text not in best or _value(candidate.logprob) > _value(best[text]):
            best[text] = candidate.logprob
    return best or None
