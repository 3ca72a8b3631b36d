"""Messages of a request -> messages as a chat template reads them.

Source: vLLM 0.33 ``parse_chat_messages``. Content becomes one text or a list of text parts, as the
template wants; arguments of tool calls in the history become mappings; keys a template doesn't know
are dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from ..errors import InvalidRequest, MalformedRequest
from ..model.content_format import ContentFormat

__all__ = ["normalize_messages"]

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_CONTENT_REQUIRED = frozenset({"user", "system", "developer", "tool"})


def normalize_messages(
    messages: list[dict[str, Any]], format_: ContentFormat, checkpoint: Callable[[], None]
) -> tuple[list[dict[str, Any]], int]:
    """Return the messages for the template, and the number of tool calls in them.

    Raises:
        MalformedRequest: a message that is not of OpenAI's form; ``param`` says which.
        InvalidRequest: content other than text.
    """
    normalized = []
    n_calls = 0
    for n, message in enumerate(messages):
        checkpoint()
        entry = _message(message, f"body.messages.{n}", format_)
        n_calls += len(entry.get("tool_calls") or ())
        normalized.append(entry)
    return normalized, n_calls


def _message(message: dict[str, Any], where: str, format_: ContentFormat) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise MalformedRequest("A message needs a role, which is a text.", f"{where}.role")
    if "content" in message and message["content"] is None and role in _CONTENT_REQUIRED:
        raise MalformedRequest(f"content of a {role} message must not be null.", f"{where}.content")
    parts = _parts(message.get("content"), f"{where}.content")
    entry: dict[str, Any] = {"role": role, "content": _content(parts, message.get("content"), format_)}
    if role == "assistant":
        _add_assistant_fields(entry, message, where)
    elif role == "tool" and isinstance(message.get("tool_call_id"), str):
        entry["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        entry["name"] = message["name"]
    return entry


def _parts(content: Any, where: str) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise MalformedRequest("content must be a text or a list of parts.", where)
    return [_part_text(part, f"{where}.{n}") for n, part in enumerate(content)]


def _part_text(part: Any, where: str) -> str:
    if not isinstance(part, dict):
        raise MalformedRequest("A part of content must be an object.", where)
    kind = part.get("type", "text")
    key = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if key is None:
        raise InvalidRequest("Only text parts are supported: this model reads text.", f"{where}.type")
    text = part.get(key)
    if not isinstance(text, str):
        raise MalformedRequest(f"A part of this type needs {key}, which is a text.", f"{where}.{key}")
    return text


def _content(parts: list[str], given: Any, format_: ContentFormat) -> str | list[dict[str, str]]:
    if format_ == "openai":
        return [{"type": "text", "text": part} for part in parts]
    return given if isinstance(given, str) else "\n".join(parts)


def _add_assistant_fields(entry: dict[str, Any], message: dict[str, Any], where: str) -> None:
    reasoning = message.get("reasoning", message.get("reasoning_content"))
    if reasoning is not None:
        if not isinstance(reasoning, str):
            raise MalformedRequest("reasoning must be a text.", f"{where}.reasoning")
        entry["reasoning"] = entry["reasoning_content"] = reasoning
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list):
        raise MalformedRequest("tool_calls must be a list.", f"{where}.tool_calls")
    entry["tool_calls"] = [_call(call, f"{where}.tool_calls.{n}") for n, call in enumerate(calls)]


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise MalformedRequest("A tool call needs a function with a name.", f"{where}.function")
    arguments = function.get("arguments", "")
    if not isinstance(arguments, str):
        raise MalformedRequest("arguments must be a text that holds JSON.", f"{where}.function.arguments")
    parsed = _arguments(arguments, f"{where}.function.arguments")
    return {**call, "function": {**function, "arguments": parsed}}


def _arguments(text: str, where: str) -> dict[str, Any]:
    """Return arguments as a mapping; what is none (cut off by ``max_tokens``, say) is an empty one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    _refuse_non_finite(value, where)
    return value


def _refuse_non_finite(value: Any, where: str) -> None:
    """json.loads reads ``1e999`` as infinity, which no JSON writer can give back."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, float) and not math.isfinite(item):
            raise InvalidRequest("A number in the arguments is out of range.", where)
