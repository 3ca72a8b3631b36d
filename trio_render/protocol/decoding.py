"""From bytes to wire types, with errors that say where in the body the fault is."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from ..errors import MalformedRequest

__all__ = ["INT64_MAX", "INT64_MIN", "decode_body", "decode_part", "encode", "param_of"]

T = TypeVar("T")

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_PATH = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `([^`]+)`")
_BYTE = re.compile(r"\(byte (\d+)\)$")
_SURROGATE = re.compile("surrogate|hex escape")
_HALF_PAIR = re.compile(rb"\\u[dD][89a-bA-B][0-9a-fA-F]{2}(?!\\u)")
_CUT_OFF = "Input data was truncated"


@cache
def _decoder(type_: Hashable) -> msgspec.json.Decoder[Any]:
    # Lax, as the reference is: 7.0 is an int, "7" too. Unions of int and str must not use this.
    return msgspec.json.Decoder(type_, strict=False)


_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """Return ``value`` (wire types, dicts, `msgspec.Raw`) as JSON bytes.

    Raises:
        MalformedRequest: something that the answer repeats of the request is nested too deep.
    """
    try:
        return _encoder.encode(value)
    except RecursionError:
        raise MalformedRequest("The body is nested too deep.", "body") from None


def param_of(path: str, root: str = "body") -> str:
    """Return a dotted parameter for msgspec's path: ``.tools[0].type`` is ``body.tools.0.type``."""
    return root + re.sub(r"\[(\d+)\]", r".\1", path.replace("[...]", ""))


def decode_body(body: bytes, type_: type[T]) -> T:
    """Return ``body`` as ``type_``.

    Raises:
        MalformedRequest: not JSON, not UTF-8 (a lone surrogate included), nested too deep, a number
            out of range, a wrong type, a missing field. Its message quotes nothing of the body.
    """
    try:
        decoded: T = _decoder(cast("Hashable", type_)).decode(body)
    except msgspec.ValidationError as error:
        raise MalformedRequest(*_described(str(error))) from None
    except msgspec.DecodeError as error:
        text = str(error)
        byte = _BYTE.search(text)
        if _SURROGATE.search(text) or (text == _CUT_OFF and _HALF_PAIR.search(body)):
            place = f"body.{byte[1]}" if byte else "body"
            raise MalformedRequest("The body holds half of a surrogate pair.", place) from None
        if byte:
            raise MalformedRequest(f"The body is not valid JSON: {text}.", f"body.{byte[1]}") from None
        where = f"body.{len(body)}" if body.strip() else "body"
        raise MalformedRequest(f"The body is not valid JSON: {text}.", where) from None
    except UnicodeDecodeError:
        raise MalformedRequest("The body is not valid UTF-8.", "body") from None
    except RecursionError:
        raise MalformedRequest("The body is nested too deep.", "body") from None
    return decoded


def decode_part(value: Any, type_: Any, root: str, *, strict: bool = False) -> Any:
    """Return a part of a body, decoded already, as ``type_``. ``root``: where in the body it is.

    Raises:
        MalformedRequest: a wrong type; as of `decode_body`.
    """
    try:
        return msgspec.convert(value, type_, strict=strict)
    except msgspec.ValidationError as error:
        raise MalformedRequest(*_described(str(error), root)) from None


def _described(text: str, root: str = "body") -> tuple[str, str]:
    path = _PATH.search(text)
    param = param_of(path[1], root) if path else root
    message = text[: path.start()] if path else text
    missing = _MISSING.match(message)
    if missing:
        param = f"{param}.{missing[1]}"
        return f"The field {missing[1]!r} is required.", param
    if message.startswith("Invalid enum value"):
        message = "Not one of the allowed values"
    return f"{message} (at {param}).", param
