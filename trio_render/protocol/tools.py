"""Tools that a request offers to the model."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["FunctionDefinition", "Tool"]


class FunctionDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A function the model may call. ``parameters`` is a JSON Schema, kept as sent."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a request's ``tools``."""

    function: FunctionDefinition
    type: Literal["function"] = "function"
