"""The constraint on calls, for each family that has one: what its reader needs to accept it."""

import json
from typing import Any

import pytest

from trio_render import ChatRequest, Policy
from trio_render.parsing.families.tools import TOOLS
from trio_render.protocol.tools import FunctionDefinition, Tool
from trio_render.render.structural_tag import call_constraint

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CONSTRAINED = sorted(name for name, family in TOOLS.items() if family.tags)
NAMED = {"type": "function", "function": {"name": "f"}}


def format_of(parser: str, choice: Any, *names: str) -> Any:
    tools = [
        Tool(function=FunctionDefinition(name=name, parameters=SCHEMA, strict=True)) for name in names or "f"
    ]
    request = ChatRequest(messages=[], tools=tools)
    outputs = call_constraint(Policy(tool_call_parser=parser), request, choice)
    assert outputs is not None
    assert outputs.structural_tag is not None
    return json.loads(outputs.structural_tag)["format"]


@pytest.mark.parametrize("parser", CONSTRAINED)
def test_every_trigger_begins_a_tag_and_every_tag_begins_with_one(parser: str) -> None:
    """xgrammar refuses a trigger without a tag, and could never reach a tag without a trigger."""
    found = format_of(parser, "auto")
    begins = [tag["begin"] for tag in found["tags"]]
    assert all(any(begin.startswith(trigger) for begin in begins) for trigger in found["triggers"])
    assert all(any(begin.startswith(trigger) for trigger in found["triggers"]) for begin in begins)


@pytest.mark.parametrize("parser", CONSTRAINED)
def test_a_trigger_is_more_than_plain_text_may_hold(parser: str) -> None:
    assert all(len(trigger) > 1 for trigger in format_of(parser, "auto")["triggers"])


@pytest.mark.parametrize("parser", ["qwen3_xml", "qwen3_coder"])
@pytest.mark.parametrize("choice", ["auto", "required", NAMED], ids=["strict", "required", "named"])
def test_arguments_between_tags_are_parameters_not_json(parser: str, choice: Any) -> None:
    for tag in format_of(parser, choice)["tags"]:
        assert tag["content"] == {
            "type": "json_schema",
            "json_schema": SCHEMA,
            "style": "qwen_xml",
            "any_order": False,
            "max_whitespace_cnt": None,
            "excludes": [],
        }
        assert tag["begin"] == "<tool_call>\n<function=f>\n"


def test_a_name_is_written_as_its_family_writes_it() -> None:
    assert '"a\\"b"' in format_of("hermes", "required", 'a"b')["tags"][0]["begin"]
    assert '=a"b>' in format_of("qwen3_xml", "required", 'a"b')["tags"][0]["begin"]
