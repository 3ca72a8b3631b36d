"""Every family reads what its models are known to write."""

from collections import Counter
from dataclasses import replace

import pytest
from parsing.literals import LITERALS, Literal
from parsing.reading import in_two, read_streamed, read_whole

from trio_render.parsing.families.channels import CHANNELS
from trio_render.parsing.families.reasoning import REASONING
from trio_render.parsing.families.tools import TOOLS

PUBLISHED_AT_LEAST = 3
BY_NAME = {literal.name: literal for literal in LITERALS}
SAME_AS = {"qwen3_xml": "qwen3_coder", "llama4_json": "llama3_json"}


@pytest.mark.parametrize("literal", BY_NAME.values(), ids=BY_NAME.keys())
def test_a_published_output_is_read_whole(literal: Literal) -> None:
    """Once, as a whole answer."""
    reading = read_whole(literal.setting, literal.output)
    assert literal.agrees(reading), reading


@pytest.mark.parametrize("literal", BY_NAME.values(), ids=BY_NAME.keys())
def test_a_published_output_is_read_the_same_at_every_cut(literal: Literal) -> None:
    """In two pieces, whichever; and character by character, with the state carried by a client."""
    streamed = read_streamed(literal.setting, literal.output)
    for pieces in in_two(literal.output):
        assert read_streamed(literal.setting, pieces) == streamed
    whole = read_whole(literal.setting, literal.output)
    if len(streamed.calls) == len(whole.calls):
        assert streamed == whole


@pytest.mark.parametrize(("name", "like"), SAME_AS.items())
def test_families_of_two_names_read_the_same(name: str, like: str) -> None:
    """One table under two names of the reference's."""
    for literal in LITERALS:
        if literal.setting.tools == like:
            assert literal.agrees(read_whole(replace(literal.setting, tools=name), literal.output))


def test_every_family_has_published_outputs() -> None:
    """Three at least, for reasoning and for calls."""
    tools = Counter(literal.setting.tools for literal in LITERALS if literal.calls)
    reasoning = Counter(literal.setting.reasoning for literal in LITERALS if literal.setting.reasoning)
    for name in {*TOOLS, "openai"} - set(SAME_AS):
        assert tools[name] >= PUBLISHED_AT_LEAST, name
    for name in {*REASONING, "openai_gptoss"}:
        assert reasoning[name] >= PUBLISHED_AT_LEAST, name
    assert {"openai", "openai_gptoss"} <= set(CHANNELS)
