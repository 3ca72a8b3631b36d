"""Tables for people, JSON for programs, pictures, and what the figures were measured on."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["Output", "machine", "median", "percentile", "print_table"]

_PACKAGES = ("trio-render", "trio", "anyio", "hypercorn", "quart-trio", "msgspec", "tokenizers", "fastokens")


@dataclass(frozen=True, slots=True)
class Output:
    """Where figures go besides the terminal."""

    json_file: Path | None = None
    plot_file: Path | None = None

    def finish(
        self,
        name: str,
        settings: Mapping[str, Any],
        figures: Mapping[str, Any],
        draw: Callable[[Path], None] | None = None,
    ) -> None:
        """Print what was measured on and with, and write what was asked for."""
        about = machine()
        versions = ", ".join(f"{package} {number}" for package, number in about["versions"].items())
        print(f"\n{about['date']}, {about['processor']}, {about['cores']} cores, Python {about['python']}")
        print(versions)
        print("settings: " + ", ".join(f"{key} {_shown(value)}" for key, value in settings.items()))
        if self.json_file is not None:
            content = {"bench": name, **about, "settings": dict(settings), **figures}
            self.json_file.write_text(json.dumps(content, indent=1, default=str) + "\n")
            print(f"figures: {self.json_file}")
        if self.plot_file is not None and draw is not None:
            draw(self.plot_file)
            print(f"picture: {self.plot_file}")
        sys.stdout.flush()


def machine() -> dict[str, Any]:
    """Return what the figures depend on, besides the code."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "versions": {name: _version(name) for name in _PACKAGES},
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


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
