"""Finding markers in text that arrives in pieces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

__all__ = ["Markers", "markers"]


@dataclass(frozen=True, slots=True)
class Markers:
    """A set of markers, none the beginning of another, prepared for searching."""

    texts: tuple[str, ...]
    pattern: re.Pattern[str]
    beginnings: frozenset[str]
    longest: int

    def search(self, text: str, start: int, end: int) -> re.Match[str] | None:
        """Return the first marker in ``text[start:end]``."""
        return self.pattern.search(text, start, end) if self.texts else None

    def cut_tail(self, text: str, start: int, end: int) -> int:
        """Return how many characters at the end of ``text[start:end]`` may begin a marker."""
        for length in range(min(self.longest - 1, end - start), 0, -1):
            if text[end - length : end] in self.beginnings:
                return length
        return 0

    def at(self, text: str, start: int, end: int) -> str | None:
        """Return the marker at ``start``; an empty text where ``text[start:end]`` only begins one."""
        rest = text[start : min(end, start + self.longest)]
        for marker in self.texts:
            if rest.startswith(marker):
                return marker
        return "" if rest in self.beginnings and start + len(rest) == end else None


@cache
def markers(texts: tuple[str, ...], before: tuple[tuple[str, str], ...] = ()) -> Markers:
    """Return prepared markers: those of the tables, so few. Raises `ValueError` if one begins another.

    Args:
        before: markers, each with the characters of which one must follow it if any does.
    """
    following = dict(before)
    unique = tuple(dict.fromkeys(text for text in texts if text))
    for marker in unique:
        for other in unique:
            if other is not marker and other.startswith(marker):
                raise ValueError(f"{marker!r} is the beginning of {other!r}")
    return Markers(
        unique,
        re.compile("|".join(_pattern(text, following.get(text)) for text in unique)),
        frozenset(marker[:n] for marker in unique for n in range(len(marker))),
        max(map(len, unique), default=0),
    )


def _pattern(text: str, following: str | None) -> str:
    if following is None:
        return re.escape(text)
    return rf"{re.escape(text)}(?=[\s{re.escape(following)}]|\Z)"
