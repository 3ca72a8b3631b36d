"""Lift the long texts of ``prompt_embeds`` out of a body, so that no JSON decoder copies them.

A decoder takes 90 MB of text twice over, and keeps the GIL meanwhile. Here the texts stay in the pieces that
they arrived in; what is decoded is the same body with a short mark in each one's place.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...workspace import Body, Checkpoint, Workspace

__all__ = ["LIFT_FROM_BYTES", "Lifted", "lift_embeds"]

LIFT_FROM_BYTES = 256 * 1024
"""Bodies, and texts in them, smaller than this are decoded as any others: in less than a millisecond."""

_KEY = b'"prompt_embeds"'
_SPACE = b" \t\r\n"
_MAX_SPACE = 4096
_MAX_TEXTS = 1024
_WINDOW = 64 * 1024
"""What is copied, to be searched. Memory for more is fetched from the kernel each time."""
_SMALL_PIECE = 16 * 1024


@dataclass(frozen=True, slots=True)
class Lifted:
    """A body without its long texts. Made by `lift_embeds`.

    Attributes:
        body: the rest, as valid a JSON document as the whole.
        mark: ``mark + str(n)`` stands there for text ``n``. Nobody can have guessed it.
        texts: the texts, each in pieces.
    """

    body: list[bytes]
    mark: str
    texts: list[list[memoryview]]

    def put_back(self, decoded: Sequence[str]) -> list[str | list[memoryview]] | None:
        """Return the decoded ``prompt_embeds`` with the texts in their places.

        ``None``: some text was not there; it belongs to something else of that name, or the name came twice.
        """
        marks = {f"{self.mark}{n}": text for n, text in enumerate(self.texts)}
        found: list[str | list[memoryview]] = [marks.pop(text, text) for text in decoded]
        return None if marks else found


def lift_embeds(workspace: Workspace, checkpoint: Checkpoint, body: Body) -> Lifted | None:
    """Return ``body`` with the long texts behind the name ``prompt_embeds`` lifted out; a job.

    ``None``: there is none, or the body is not one that this finds its way in (texts with escapes, say),
    and has to be decoded whole.
    """
    scanner = _Scanner(list(_regrouped(body)), checkpoint)
    mark = secrets.token_hex(16) + ":"
    texts: list[list[memoryview]] = []
    try:
        while scanner.pass_key():
            _lift_value(scanner, mark, texts)
    except _Lost:
        return None
    return Lifted(scanner.passed, mark, texts) if texts else None


class _Lost(Exception):
    """The body has to be decoded whole."""


def _lift_value(scanner: _Scanner, mark: str, texts: list[list[memoryview]]) -> None:
    if not scanner.passes(b":"):
        return
    is_list = scanner.passes(b"[")
    while scanner.passes(b'"'):
        text = scanner.take_text()
        if sum(map(len, text)) < LIFT_FROM_BYTES:
            scanner.passed += map(bytes, text)
        else:
            scanner.passed.append(f"{mark}{len(texts)}".encode())
            texts.append(text)
            if len(texts) > _MAX_TEXTS:
                raise _Lost
        scanner.passes(b'"')
        if not is_list or not scanner.passes(b","):
            return


def _regrouped(body: Body) -> Iterator[memoryview]:
    """Yield the pieces, small ones joined: a name may lie across two of them, but not more."""
    small: list[bytes | memoryview] = []
    n_small = 0
    for piece in body:
        small.append(piece)
        n_small += len(piece)
        if n_small >= _SMALL_PIECE:
            yield memoryview(piece if len(small) == 1 else b"".join(small))
            small, n_small = [], 0
    if small:
        yield memoryview(b"".join(small))


class _Scanner:
    """A place in a body. ``passed`` is what lies behind it, without what was taken."""

    def __init__(self, pieces: list[memoryview], checkpoint: Checkpoint) -> None:
        self.passed: list[bytes] = []
        self._pieces = pieces
        self._checkpoint = checkpoint
        self._n = 0
        self._at = 0

    def pass_key(self) -> bool:
        """Go behind the next ``"prompt_embeds"``; or, returning ``False``, to the end."""
        while self._n < len(self._pieces):
            piece = self._pieces[self._n]
            for start in range(self._at, len(piece), _WINDOW):
                self._checkpoint()
                found = bytes(piece[start : start + _WINDOW + len(_KEY)]).find(_KEY)
                if found >= 0:
                    self._pass_to(start + found + len(_KEY))
                    return True
            if self._key_lies_across():
                return True
            self._pass_to(len(piece))
            self._next()
        return False

    def _key_lies_across(self) -> bool:
        if self._n + 1 == len(self._pieces):
            return False
        piece, following = self._pieces[self._n], self._pieces[self._n + 1]
        end = bytes(piece[max(self._at, len(piece) - len(_KEY) + 1) :])
        found = (end + bytes(following[: len(_KEY) - 1])).find(_KEY)
        if found < 0:
            return False
        self._pass_to(len(piece))
        self._next()
        self._pass_to(found + len(_KEY) - len(end))
        return True

    def passes(self, byte: bytes) -> bool:
        """Go behind white space and ``byte``, if that comes next; else behind the white space only."""
        for _ in range(_MAX_SPACE):
            if self._n == len(self._pieces):
                return False
            piece = self._pieces[self._n]
            if self._at == len(piece):
                self._next()
                continue
            here = bytes(piece[self._at : self._at + 1])
            if here == byte:
                self._pass_to(self._at + 1)
                return True
            if here not in _SPACE:
                return False
            self._pass_to(self._at + 1)
        raise _Lost

    def take_text(self) -> list[memoryview]:
        """Take everything up to the next quotation mark. Raises `_Lost`: there are escapes, or no mark."""
        taken: list[memoryview] = []
        while self._n < len(self._pieces):
            piece, begin = self._pieces[self._n], self._at
            while self._at < len(piece):
                self._checkpoint()
                window = bytes(piece[self._at : self._at + _WINDOW])
                found = window.find(b'"')
                n_text = len(window) if found < 0 else found
                if window.find(b"\\", 0, n_text) >= 0:
                    raise _Lost
                self._at += n_text
                if found >= 0:
                    taken.append(piece[begin : self._at])
                    return taken
            taken.append(piece[begin:])
            self._next()
        raise _Lost

    def _pass_to(self, end: int) -> None:
        if end > self._at:
            self.passed.append(bytes(self._pieces[self._n][self._at : end]))
        self._at = end

    def _next(self) -> None:
        self._n += 1
        self._at = 0
