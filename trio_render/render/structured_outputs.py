"""``structured_outputs`` and ``response_format`` -> one constraint for the engine."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import InvalidRequest, MalformedRequest
from ..protocol.sampling import StructuredOutputs

__all__ = ["structured_outputs"]

_KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


def structured_outputs(given: Any, response_format: Any) -> StructuredOutputs | None:
    """Return the constraint, or ``None`` when the request sets none.

    Raises:
        InvalidRequest: no kind or more than one kind of constraint.
        MalformedRequest: a value of the wrong type, an unknown ``response_format``.
    """
    constraint = None if given is None else _given(given)
    format_ = _from_format(response_format)
    if constraint is None:
        return format_
    if format_ is not None:
        raise InvalidRequest("Set structured_outputs or response_format, not both.", "structured_outputs")
    return constraint


def _given(value: Any) -> StructuredOutputs:
    try:
        constraint = msgspec.convert(value, StructuredOutputs)
    except msgspec.ValidationError as error:
        raise MalformedRequest(f"structured_outputs: {error}.", "body.structured_outputs") from None
    kinds = [kind for kind in _KINDS if getattr(constraint, kind) not in (None, False)]
    if len(kinds) != 1:
        raise InvalidRequest(
            f"structured_outputs needs exactly one of {', '.join(_KINDS)}; it has {len(kinds)}.",
            "structured_outputs",
        )
    return constraint


def _from_format(value: Any) -> StructuredOutputs | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise MalformedRequest("response_format must be an object.", "body.response_format")
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return StructuredOutputs(json_object=True)
    if kind == "json_schema":
        wrapped = value.get("json_schema")
        schema = wrapped.get("schema") if isinstance(wrapped, dict) else None
        if not isinstance(schema, dict):
            raise MalformedRequest(
                "response_format.json_schema.schema must be an object.", "body.response_format.json_schema"
            )
        return StructuredOutputs(json=schema)
    raise MalformedRequest(
        "response_format.type must be text, json_object or json_schema.", "body.response_format.type"
    )
