"""``tools`` and ``tool_choice`` of a chat request: checked, and in the form that templates read."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from ..errors import InvalidRequest
from ..policy import Policy
from ..protocol.chat import ChatRequest
from ..protocol.tools import Tool

__all__ = ["resolve_tool_choice", "template_tools", "wire_tools"]


def resolve_tool_choice(policy: Policy, request: ChatRequest) -> str | dict[str, Any] | None:
    """Return the effective ``tool_choice``: unset, it is ``auto`` with tools and ``none`` without.

    Raises:
        InvalidRequest: tools that are empty; a choice without tools, unknown, or naming no tool; a
            choice whose output would have to be parsed, where no parser is set up.
    """
    tools, choice = request.tools, request.tool_choice
    if tools is not None and not tools:
        raise InvalidRequest("tools must not be empty; leave it out instead.", "tools")
    if choice is UNSET:
        choice = "auto" if tools else "none"
    if choice is None or choice == "none":
        return None if choice is None else "none"
    if not tools:
        raise InvalidRequest("tool_choice needs tools.", "tool_choice")
    if isinstance(choice, dict):
        _check_named(choice, tools)
    elif choice not in ("auto", "required"):
        raise InvalidRequest("tool_choice must be none, auto, required or a function.", "tool_choice")
    if policy.tool_call_parser is None:
        raise InvalidRequest(
            "This server parses no tool calls, so tool_choice must be none or null.", "tool_choice"
        )
    if choice == "auto" and not policy.enable_auto_tool_choice:
        raise InvalidRequest(
            "This server takes tool_choice none, null, required or a function, but not auto.", "tool_choice"
        )
    return choice


def _check_named(choice: dict[str, Any], tools: list[Tool]) -> None:
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if choice.get("type") != "function" or not isinstance(name, str) or not name:
        raise InvalidRequest("tool_choice must name a function.", "tool_choice.function.name")
    if all(tool.function.name != name for tool in tools):
        raise InvalidRequest(
            "tool_choice names a function that is not in tools.", "tool_choice.function.name"
        )


def template_tools(tools: list[Tool] | None) -> list[dict[str, Any]] | None:
    """Return tools as the engine's own renderer shows them to a template: absent fields are null."""
    if tools is None:
        return None
    return [{"type": tool.type, "function": _function(tool, keep_null=True)} for tool in tools]


def wire_tools(tools: list[Tool] | None) -> list[dict[str, Any]] | None:
    """Return tools for the parse context: absent fields are left out."""
    if tools is None:
        return None
    return [{"type": tool.type, "function": _function(tool, keep_null=False)} for tool in tools]


def _function(tool: Tool, *, keep_null: bool) -> dict[str, Any]:
    function = tool.function
    fields: dict[str, Any] = {
        "name": function.name,
        "description": function.description,
        "parameters": function.parameters,
    }
    if function.strict is not None:
        fields["strict"] = function.strict
    return fields if keep_null else {key: value for key, value in fields.items() if value is not None}
