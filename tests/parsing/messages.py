"""Random messages: prose that looks like markup, and arguments nested as deep as models nest them."""

import random
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

WORDS = [
    "The", "weather", "in", "Köln", "is", "fine.", "北京", "今天", "😀", "👨‍👩‍👧", "don't", '"quoted"',
    "a\\b", "\\n", "x < y", "<b>bold</b>", "&amp;", "{", "}", '{"a": [1, 2]}', "[link](http://a.b)", "f(x=1)",
    "```py\nx\n```", "- item\n", "\n\n", "\t", "  ", "\r\n", "<", "|", "<|", "</", "[", "]", "1.5", "``",
    "`", "<im_end>", "</s>", "= =", "%s", "é" * 3,
]  # fmt: skip
NAMES = ["f", "get_weather", "search.web", "a_1", "Bing.open_url", "x", "no_function"]
KEYS = ["city", "q", "n", "opts", "name", "arguments", "größe", "x_1", "type"]


@dataclass(frozen=True)
class Message:
    """What a writer writes, and what must be read back."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


class Maker:
    """Makes messages. ``markers``: markup of every family, which is text in all others.

    Texts are NFC, as a tokenizer may normalise to it.
    """

    def __init__(self, rng: random.Random, markers: Iterable[str]) -> None:
        self.rng = rng
        self.pieces = [*WORDS, *WORDS, *markers]

    def text(self, avoid: Iterable[str] = (), longest: int = 8) -> str:
        """A text without any of ``avoid``."""
        avoided = tuple(avoid)
        while True:
            pieces = self.rng.choices(self.pieces, k=self.rng.randint(0, longest))
            text = unicodedata.normalize("NFC", self.rng.choice(["", " "]).join(pieces))
            if not any(marker in text for marker in avoided):
                return text

    def prose(self, avoid: Iterable[str], first: str = "") -> str:
        """A text without whitespace around it, and that doesn't begin with a character of ``first``."""
        while True:
            text = self.text(avoid).strip()
            if text[:1] == "" or text[0] not in first:
                return text

    def value(self, avoid: Iterable[str], depth: int = 0) -> Any:
        """A JSON value."""
        rng = self.rng
        kind = rng.randint(0, 5 if depth > 2 else 8)
        if kind <= 2:
            return self.text(avoid, 4)
        if kind == 3:
            return rng.choice([0, 1, -7, 42, 2**63, -(10**30), 1.5, -0.25, 1e300])
        if kind <= 5:
            return rng.choice([True, False, None])
        if kind == 6:
            return [self.value(avoid, depth + 1) for _ in range(rng.randint(0, 3))]
        return self.mapping(avoid, depth + 1)

    def mapping(self, avoid: Iterable[str], depth: int = 0) -> dict[str, Any]:
        """A JSON object."""
        return {key: self.value(avoid, depth) for key in self.rng.sample(KEYS, self.rng.randint(0, 3))}

    def calls(self, avoid: Iterable[str], *, of_one: bool = True) -> list[tuple[str, dict[str, Any]]]:
        """Up to three calls; without ``of_one`` none of a function that another one calls."""
        n_calls = self.rng.choice([0, 1, 1, 2, 3])
        names = self.rng.choices(NAMES, k=n_calls) if of_one else self.rng.sample(NAMES, n_calls)
        return [(name, self.mapping(avoid)) for name in names]
