"""Messages of a request as a template reads them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import never

from trio_render import InvalidRequest, MalformedRequest
from trio_render.model.content_format import ContentFormat
from trio_render.render.messages import normalize_messages


def normalized(message: dict[str, Any], format_: ContentFormat = "string") -> dict[str, Any]:
    return normalize_messages([message], format_, never)[0][0]


def param_at_fault(message: Any, error: type[InvalidRequest] = MalformedRequest) -> str | None:
    with pytest.raises(error) as caught:
        normalize_messages([{"role": "user", "content": "fine"}, message], "string", never)
    return caught.value.param


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", "hi"),
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "hi"}], "hi"),
        ([{"text": "a"}, {"type": "input_text", "text": "b"}], "a\nb"),
        ([{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "no"}], "a\nno"),
    ],
)
def test_content_becomes_one_text_or_parts(content: Any, text: str) -> None:
    assert normalized({"role": "user", "content": content})["content"] == text
    parts = normalized({"role": "user", "content": content}, "openai")["content"]
    assert all(part["type"] == "text" for part in parts)
    assert "\n".join(part["text"] for part in parts) == text


def test_only_keys_that_templates_know_are_kept() -> None:
    message = {
        "role": "user",
        "content": "hi",
        "name": "ann",
        "tool_call_id": "c",
        "extra": 1,
        "tool_calls": [1],
    }
    assert normalized(message) == {"role": "user", "content": "hi", "name": "ann"}
    answer = {"role": "tool", "content": "5", "tool_call_id": "c", "name": 5}
    assert normalized(answer) == {"role": "tool", "content": "5", "tool_call_id": "c"}


def test_reasoning_goes_by_both_its_names() -> None:
    for key in ("reasoning", "reasoning_content"):
        entry = normalized({"role": "assistant", "content": "x", key: "why"})
        assert entry["reasoning"] == entry["reasoning_content"] == "why"


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"a": [1, null]}', {"a": [1, None]}),
        ("", {}),
        ('{"a": 1', {}),
        ("[1]", {}),
        ("null", {}),
        ("[" * 5000, {}),
        ("9" * 5000, {}),
    ],
)
def test_arguments_of_calls_become_mappings(arguments: str, parsed: dict[str, Any]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    entry = normalized({"role": "assistant", "tool_calls": [call]})
    assert entry["tool_calls"] == [{**call, "function": {"name": "f", "arguments": parsed}}]
    assert call["function"]["arguments"] == arguments  # type: ignore[index]


def test_calls_are_counted_over_all_messages() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "tool_calls": [call] * n} for n in (2, 0, 3)]
    assert normalize_messages(messages, "string", never)[1] == 5
    assert (
        normalize_messages([{"role": "user", "content": "", "tool_calls": [call]}], "string", never)[1] == 0
    )


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({}, "body.messages.1.role"),
        ({"role": 5}, "body.messages.1.role"),
        ({"role": "user", "content": None}, "body.messages.1.content"),
        ({"role": "tool", "content": None}, "body.messages.1.content"),
        ({"role": "user", "content": 5}, "body.messages.1.content"),
        ({"role": "user", "content": {"type": "text"}}, "body.messages.1.content"),
        ({"role": "user", "content": ["hi"]}, "body.messages.1.content.0"),
        ({"role": "user", "content": [{"type": "text"}]}, "body.messages.1.content.0.text"),
        (
            {"role": "user", "content": [{"type": "refusal", "text": "x"}]},
            "body.messages.1.content.0.refusal",
        ),
        ({"role": "assistant", "reasoning": 5}, "body.messages.1.reasoning"),
        ({"role": "assistant", "tool_calls": {}}, "body.messages.1.tool_calls"),
        ({"role": "assistant", "tool_calls": [None]}, "body.messages.1.tool_calls.0.function"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "body.messages.1.tool_calls.0.function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            "body.messages.1.tool_calls.0.function.arguments",
        ),
    ],
)
def test_the_message_at_fault_is_named(message: dict[str, Any], param: str) -> None:
    assert param_at_fault(message) == param


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "video", "", 5, None, [], {}])
def test_content_other_than_text_is_refused(kind: Any) -> None:
    part = {"type": kind, "text": "x"}
    assert (
        param_at_fault({"role": "user", "content": [part]}, InvalidRequest)
        == "body.messages.1.content.0.type"
    )


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_numbers_in_arguments_are_finite(number: str) -> None:
    call = {"function": {"name": "f", "arguments": f'{{"a": [{{"b": {number}}}]}}'}}
    assert (
        param_at_fault({"role": "assistant", "tool_calls": [call]}, InvalidRequest)
        == "body.messages.1.tool_calls.0.function.arguments"
    )


def test_every_message_is_a_checkpoint() -> None:
    calls: list[int] = []
    normalize_messages([{"role": "user", "content": "x"}] * 30, "string", lambda: calls.append(1))
    assert len(calls) == 30


@settings(deadline=None, max_examples=200)
@given(st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=5)}), max_size=5))
def test_no_text_of_a_part_is_changed(parts: list[dict[str, str]]) -> None:
    assert normalized({"role": "user", "content": parts}, "openai")["content"] == parts
