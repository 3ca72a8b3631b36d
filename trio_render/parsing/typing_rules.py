"""What type an argument has that a family writes as bare text. The tool's JSON Schema decides.

Source: vLLM 0.33 ``coerce_to_schema_type``: of the types that a schema allows, the first that fits, in the
order null, integer, number, boolean, object, array, string.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["allowed_types", "as_json", "is_json"]

_ALIASES = {
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "tuple": "array",
    "str": "string",
    "text": "string",
}
_OF_VALUE = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_MAX_DEPTH = 8


def allowed_types(schema: Any, depth: int = 0) -> frozenset[str]:
    """Return the types that a schema names; empty where it names none."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return frozenset()
    named = schema.get("type")
    types = {t for t in (named if isinstance(named, list) else [named]) if isinstance(t, str)}
    for value in schema.get("enum") or () if isinstance(schema.get("enum"), list) else ():
        types.add("null" if value is None else _OF_VALUE.get(type(value), "string"))
    for key in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(key)
        for part in parts if isinstance(parts, list) else ():
            types |= allowed_types(part, depth + 1)
    return frozenset(_ALIASES.get(t.lower(), t.lower()) for t in types)


def as_json(text: str, types: frozenset[str]) -> str:
    """Return a value's text as JSON of the first allowed type that it fits, else as a JSON string."""
    word = text.strip()
    if "null" in types and word.lower() in ("null", "none"):
        return "null"
    number = _number(word, types)
    if number is not None:
        return number
    if "boolean" in types and word.lower() in ("true", "1", "false", "0"):
        return "true" if word.lower() in ("true", "1") else "false"
    for type_, bracket in (("object", "{"), ("array", "[")):
        if type_ in types and word[:1] == bracket and is_json(word):
            return word
    if types and "string" not in types and is_json(word):
        return word
    return json.dumps(text, ensure_ascii=False)


def _number(word: str, types: frozenset[str]) -> str | None:
    if "integer" in types:
        try:
            return str(int(word)) if len(word) <= 4000 else None
        except ValueError:
            pass
    if "number" in types:
        try:
            value = float(word)
        except ValueError:
            return None
        if math.isfinite(value):
            return str(int(value)) if value.is_integer() and abs(value) < 2**53 else json.dumps(value)
    return None


def is_json(text: str) -> bool:
    """Say whether ``text`` is JSON, as its standard has it: no NaN, and integers of any length."""
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> Any:
    raise ValueError(name)
