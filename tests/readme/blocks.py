"""The README in pieces: its fenced code blocks, in order, and its tables."""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line where it starts."""

    language: str
    text: str
    line: int

    @property
    def kind(self) -> str:
        """What the block is to the tests: a curl, benchmark or set-up command, or its language."""
        if self.language == "bash":
            starts = {"curl ": "curl", ".venv/bin/python -m bench ": "bench"}
            return next((kind for start, kind in starts.items() if self.text.startswith(start)), "setup")
        return self.language


BLOCKS = [Block(m[1], m[2], README[: m.start()].count("\n") + 1) for m in _FENCE.finditer(README)]
PROSE = _FENCE.sub("", README)


def with_output(kind: str, output: str) -> list[tuple[Block, Block]]:
    """The blocks of a kind, each with the block of its output, which follows it."""
    return [
        (block, after) for block, after in pairwise(BLOCKS) if block.kind == kind and after.kind == output
    ]


def of_kind(kind: str) -> list[Block]:
    """The blocks of a kind."""
    return [block for block in BLOCKS if block.kind == kind]


def section(heading: str) -> str:
    """What stands below a heading, without its code blocks."""
    return PROSE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def table(heading: str, n: int = 0) -> list[list[str]]:
    """The rows of the ``n``-th table below a heading, without its head."""
    rows = re.findall(r"(?:^\|.*\n)+", section(heading), re.MULTILINE)[n].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def codes(cell: str) -> list[str]:
    """What stands in backquotes."""
    return re.findall(r"`([^`]+)`", cell)
