"""Outputs that are published: in model cards, in what chat templates render, in other parsers' tests.

Each names its source. ``differs`` says why the reading is another than the source's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsing.reading import Reading, Setting


@dataclass(frozen=True)
class Literal:
    """One output and what it says; arguments are compared as JSON, broken ones as text."""

    name: str
    source: str
    setting: Setting
    output: str
    content: str
    reasoning: str
    calls: tuple[tuple[str, Any], ...]
    differs: str | None

    @property
    def family(self) -> str:
        return self.name.partition("/")[0]

    def agrees(self, reading: Reading) -> bool:
        """Whether a reading is the right one."""
        calls = tuple((name, value_of(arguments)) for name, arguments in reading.calls)
        return (reading.content, reading.reasoning, calls) == (self.content, self.reasoning, self.calls)


def value_of(arguments: str) -> Any:
    """The value of arguments, or their text if they are no JSON."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _literal(entry: Mapping[str, Any]) -> Literal:
    return Literal(
        name=entry["name"],
        source=entry["source"],
        setting=Setting(
            entry["tools"], entry["reasoning_parser"], entry.get("schemas", {}), entry.get("switches", {})
        ),
        output=entry["output"],
        content=entry["content"],
        reasoning=entry["reasoning"],
        calls=tuple((name, arguments) for name, arguments in entry["calls"]),
        differs=entry.get("differs"),
    )


LITERALS = [
    _literal(entry) for entry in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
]
