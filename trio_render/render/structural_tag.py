"""The constraint that makes a model write tool calls in its family's format.

Source: xgrammar's structural tags, as vLLM 0.33 puts them into ``structured_outputs`` for a choice that
demands a call, for serial calls and for strict tools.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..parsing.families.tools import TOOLS
from ..parsing.grammar import Tools
from ..policy import Policy
from ..protocol.chat import ChatRequest
from ..protocol.sampling import StructuredOutputs
from ..protocol.tools import Tool

__all__ = ["call_constraint"]


def call_constraint(
    policy: Policy, request: ChatRequest, choice: str | dict[str, Any] | None
) -> StructuredOutputs | None:
    """Return the constraint on calls; ``None`` where calls are free, or their format can't be described.

    Args:
        choice: the effective ``tool_choice``.
    """
    family = TOOLS.get(policy.tool_call_parser or "")
    tools = request.tools or []
    if family is None or not family.tags or choice in (None, "none"):
        return None
    serial = request.parallel_tool_calls is False
    if isinstance(choice, dict):
        name = choice["function"]["name"]
        format_ = _demanded(_tags(family, [tool for tool in tools if tool.function.name == name]), True)
    elif choice == "required":
        format_ = _demanded(_tags(family, tools), serial)
    elif serial or any(tool.function.strict for tool in tools):
        format_ = {
            "type": "triggered_tags",
            "triggers": _triggers(family),
            "tags": _tags(family, tools),
            "at_least_one": False,
            "stop_after_first": serial,
            "excludes": [],
        }
    else:
        return None
    tag = {"type": "structural_tag", "format": format_}
    return StructuredOutputs(structural_tag=json.dumps(tag, ensure_ascii=False))


def _demanded(tags: list[dict[str, Any]], only_one: bool) -> dict[str, Any]:
    return {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": "",
        "at_least_one": True,
        "stop_after_first": only_one,
    }


def _triggers(family: Tools) -> list[str]:
    """Return what begins a call and nothing else: the family's marker, or all that stands before the name."""
    before = [begin.partition("%s")[0] for begin, _ in family.tags]
    markers = [[mark for mark in family.opens if len(mark) > 1 and text.startswith(mark)] for text in before]
    triggers = [marks[0] if marks else text for marks, text in zip(markers, before, strict=True)]
    return list(dict.fromkeys(triggers))


def _tags(family: Tools, tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [
        {
            "type": "tag",
            "begin": begin.replace("%s", _name(tool, family.style)),
            "content": _content(tool, family.style),
            "end": end,
        }
        for tool in tools
        for begin, end in family.tags
    ]


def _name(tool: Tool, style: str) -> str:
    name = tool.function.name
    return json.dumps(name, ensure_ascii=False)[1:-1] if style == "json" else name


def _content(tool: Tool, style: str) -> dict[str, Any]:
    strict = tool.function.strict and tool.function.parameters is not None
    return {
        "type": "json_schema",
        "json_schema": tool.function.parameters if strict else True,
        "style": style,
        "any_order": False,
        "max_whitespace_cnt": None,
        "excludes": [],
    }
