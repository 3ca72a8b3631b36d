"""Tables for people, JSON for programs, and what the figures were measured on."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["machine", "median", "percentile", "print_table", "write_json"]

_PACKAGES = ("trio-render", "trio", "anyio", "hypercorn", "quart-trio", "msgspec", "tokenizers", "fastokens")


def machine() -> dict[str, Any]:
    """Return what the figures depend on, besides the code."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "machine": platform.machine(),
        "versions": {name: version(name) for name in _PACKAGES},
    }


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the value that ``fraction`` of ``values`` are at or below."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * fraction), len(ordered) - 1)]


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with aligned columns."""
    cells = [list(columns), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[n]) for row in cells) for n in range(len(columns))]
    print(f"\n{title}")
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    sys.stdout.flush()


def write_json(file: Path | None, name: str, figures: Mapping[str, Any]) -> None:
    """Write the figures and the machine to ``file``, if one is given."""
    if file is not None:
        file.write_text(json.dumps({"bench": name, **machine(), **figures}, indent=1) + "\n")
