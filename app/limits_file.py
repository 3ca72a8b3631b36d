"""Limits from a file: option names and values, as ``python -m bench limiter --limits-out`` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .settings import SettingsError

__all__ = ["limits_from"]

_NUMBERS = (
    "limit_render",
    "limit_derender",
    "limit_prompt_embeds",
    "limit_engine",
    "limit_shared",
    "limit_gil",
    "processes",
)
_MODES = ("auto", "thread", "process", "inline")


def limits_from(file: Path) -> dict[str, Any]:
    """Return the settings that ``file`` holds.

    Raises:
        SettingsError: it can't be read, or is not an object of settings of ours; the key at fault is named.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"--limits-from {file} can't be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise SettingsError(f"--limits-from {file} is not JSON.") from None
    if not isinstance(found, dict):
        raise SettingsError(f"--limits-from {file} must hold an object.")
    for key, value in found.items():
        fault = _fault(key, value)
        if fault is not None:
            raise SettingsError(f"--limits-from {file}: {key[:100]!r} {fault}.")
    return found


def _fault(key: str, value: Any) -> str | None:
    """Return what is wrong with a value, or ``None``."""
    if key == "offload":
        return None if value in _MODES else f"must be one of {', '.join(_MODES)}"
    if key not in _NUMBERS:
        return f"is not one of offload, {', '.join(_NUMBERS)}"
    if value is None and key == "limit_shared":
        return None
    if type(value) is not int:
        return "must be a whole number"
    return None if value >= 1 else "must be at least 1"
