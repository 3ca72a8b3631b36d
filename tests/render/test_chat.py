"""Rules of chat requests that no other file has: flags, tools, template variables, given ids."""

from pathlib import Path
from typing import Any

import pytest
from opened_models import never, opened

from trio_render import ChatRequest, InvalidRequest, Model, ModelNotFound, Policy
from trio_render.protocol.generate import GenerateRequest
from trio_render.protocol.tools import FunctionDefinition, Tool
from trio_render.render.chat import render_chat

TOOLS = [Tool(function=FunctionDefinition(name="f", parameters={"type": "object"}))]
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
def model(model_folders: Path) -> Model:
    return opened(model_folders / "smollm2")


def rendered(model: Model, policy: Policy | None = None, /, **fields: Any) -> GenerateRequest:
    return render_chat(model, policy or Policy(), ChatRequest(**{"messages": MESSAGES, **fields}), never)


def shown(model: Model, source: str, **fields: Any) -> str:
    """What a trusted template of the request writes."""
    answer = rendered(model, Policy(trust_request_chat_template=True), chat_template=source, **fields)
    return b"".join(model.tokenizer.table.byte_values[i] for i in answer.token_ids).decode()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"chat_template": "x"}, "chat_template"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"tools": []}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": "auto", "tools": TOOLS}, "tool_choice"),
        ({"tools": TOOLS}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {}}, "tools": TOOLS}, "tool_choice.function.name"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": TOOLS},
            "tool_choice.function.name",
        ),
        ({"tool_choice": 5, "tools": TOOLS}, "tool_choice"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"__pace": 1}}, "chat_template_kwargs"),
        ({"media_io_kwargs": {}}, "media_io_kwargs"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": 5}, "body.structured_outputs"),
        ({"structured_outputs": {"regex": 5}}, "body.structured_outputs"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs",
        ),
        ({"response_format": 5}, "body.response_format"),
        ({"response_format": {}}, "body.response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "body.response_format.json_schema"),
        ({"kv_transfer_params": {"prompt_token_ids": []}}, "kv_transfer_params.prompt_token_ids"),
        ({"kv_transfer_params": {"prompt_token_ids": [True]}}, "kv_transfer_params.prompt_token_ids"),
        ({"kv_transfer_params": {"prompt_token_ids": [-1]}}, "kv_transfer_params.prompt_token_ids"),
        ({"min_tokens": 10, "max_tokens": 5}, "min_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": 2, "logprobs": False}, "top_logprobs"),
    ],
)
def test_the_parameter_at_fault_is_named(model: Model, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rendered(model, **fields)
    assert caught.value.param == param


def test_a_model_without_template_takes_no_chats(model: Model) -> None:
    bare = Model(**{name: getattr(model, name) for name in Model.__slots__} | {"template": None})
    with pytest.raises(InvalidRequest):
        rendered(bare)


@pytest.mark.parametrize(
    ("asked", "served"), [(None, True), ("", True), ("m", True), ("n", True), ("o", False)]
)
def test_only_served_names_are_served(model: Model, asked: str | None, served: bool) -> None:
    policy = Policy(served_names=("m", "n"))
    if served:
        assert rendered(model, policy, model=asked)
    else:
        with pytest.raises(ModelNotFound):
            rendered(model, policy, model=asked)


@pytest.mark.parametrize(
    "name",
    [
        "tokenize",
        "add_generation_prompt",
        "continue_final_message",
        "return_dict",
        "truncation",
        "max_length",
        "padding",
        "bos_token",
    ],
)
def test_switches_of_the_server_change_nothing(model: Model, name: str) -> None:
    for value in (True, False, 2, "x"):
        assert rendered(model, chat_template_kwargs={name: value}).token_ids == rendered(model).token_ids


def test_reasoning_effort_is_a_variable_and_turns_thinking_off(model: Model) -> None:
    source = "{{ reasoning_effort }} {{ enable_thinking }}"
    assert shown(model, source, reasoning_effort="low") == "low True"
    assert shown(model, source, reasoning_effort="none") == "none False"
    kwargs = {"enable_thinking": True}
    assert shown(model, source, reasoning_effort="none", chat_template_kwargs=kwargs) == "none True"


def test_a_null_variable_is_undefined(model: Model) -> None:
    assert shown(model, "{{ a is defined }}", chat_template_kwargs={"a": None}) == "False"


def test_templates_see_tools_with_null_fields_and_hosts_without(model: Model) -> None:
    text = shown(model, "{{ tools | tojson }}", tools=TOOLS, tool_choice="none")
    assert text == (
        '[{"type": "function", "function":'
        ' {"name": "f", "description": null, "parameters": {"type": "object"}}}]'
    )
    answer = rendered(model, tools=TOOLS, tool_choice="none")
    assert answer.parse_context is not None
    assert answer.parse_context.tools == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    ]


def test_ids_of_another_server_are_the_prompt_and_are_not_passed_on(model: Model) -> None:
    answer = rendered(model, kv_transfer_params={"prompt_token_ids": [5, 6], "a": 1})
    assert answer.token_ids == [5, 6]
    assert answer.kv_transfer_params == {"a": 1}
    assert rendered(model, kv_transfer_params={"prompt_token_ids": [5]}).kv_transfer_params is None


def test_the_caller_s_request_id_wins(model: Model) -> None:
    request = ChatRequest(messages=MESSAGES, request_id="body")
    assert render_chat(model, Policy(), request, never, "header").request_id == "chatcmpl-header"
    assert render_chat(model, Policy(), request, never).request_id == "chatcmpl-body"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"structured_outputs": {"json": {"a": 1}}}, {"json": {"a": 1}}),
        ({"structured_outputs": {"choice": ["a"]}}, {"choice": ["a"]}),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": 1}}}},
            {"json": {"a": 1}},
        ),
        ({"response_format": {"type": "text"}}, None),
    ],
)
def test_constraints(model: Model, fields: dict[str, Any], wanted: dict[str, Any] | None) -> None:
    constraint = rendered(model, **fields).sampling_params.structured_outputs
    if wanted is None:
        assert constraint is None
    else:
        assert constraint is not None
        for name, value in wanted.items():
            assert getattr(constraint, name) == value
