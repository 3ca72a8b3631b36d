"""Templates that refuse or fail, variables that requests hand them, and templates that requests bring."""

import json
import time
from typing import Any

import pytest
from in_process import CHAT_RENDER, TOKENIZE, InProcessServer

from trio_render import Policy

USER_HI = [{"role": "user", "content": "Hi"}]


def trusting(server: InProcessServer) -> InProcessServer:
    """The same model on a server whose operator lets requests bring templates."""
    return InProcessServer(server.model, Policy(served_names=("m",), trust_request_chat_template=True))


def chat(messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A chat body."""
    return {"model": "m", "messages": messages, **fields}


def test_vllm_17119_template_that_refuses_a_role(mistral: InProcessServer) -> None:
    """A wrong order of roles is the client's fault, but was answered as a server error."""
    error = mistral.post(CHAT_RENDER, chat([{"role": "system", "content": "s"}, *USER_HI])).error
    assert error["code"] == 400
    assert "Only user and assistant roles are supported" in error["message"]


def test_sglang_20700_nan_in_the_body(qwen3: InProcessServer) -> None:
    """NaN is no JSON; it was rendered into the prompt."""
    tool = '{"type":"function","function":{"name":"f","parameters":{"default": NaN}}}'
    body = json.dumps(chat(USER_HI, tools=["TOOL"], tool_choice="none")).replace('"TOOL"', tool)
    assert qwen3.post(CHAT_RENDER, body.encode()).error["code"] == 400


def test_sglang_20700_tool_without_a_type(qwen3: InProcessServer) -> None:
    """What is missing is filled in or refused."""
    reply = qwen3.post(CHAT_RENDER, chat(USER_HI, tools=[{"function": {"name": "f"}}], tool_choice="none"))
    assert reply.status in (200, 400)


@pytest.mark.parametrize("kwargs", [{"messages": []}, {"tools": [1]}, {"return_tensors": "pt"}], ids=str)
def test_sglang_20700_variables_that_break_a_template(qwen3: InProcessServer, kwargs: dict[str, Any]) -> None:
    """A filter raised another class than the template library's own, and became a server error."""
    reply = qwen3.post(CHAT_RENDER, chat(USER_HI, chat_template_kwargs=kwargs))
    assert reply.status in (200, 400)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ 1 // 0 }}",
        "{{ messages[0]['content']['x']['y'] }}",
        "{{ messages | tojson(indent=messages) }}",
        "{{ undefined_name() }}",
        "{{ raise_exception('no') }}",
        "{% for",
        "{{ ''.__class__.__mro__ }}{{ messages[0].__class__.__init__.__globals__ }}",
    ],
)
def test_sglang_20700_errors_of_any_class_inside_a_template(smollm2: InProcessServer, source: str) -> None:
    """Whatever a template raises is an answer to the request, not a failure of the server."""
    error = trusting(smollm2).post(CHAT_RENDER, chat(USER_HI, chat_template=source)).error
    assert error["code"] == 400
    assert "Traceback" not in error["message"]


def test_llama_cpp_11402_no_other_template_is_tried(mistral: InProcessServer) -> None:
    """When the template raised, a built-in format made a prompt that the model never saw."""
    reply = mistral.post(CHAT_RENDER, chat([{"role": "tool", "tool_call_id": "a", "content": "x"}]))
    assert reply.error["code"] == 400
    assert set(reply.body) == {"error"}


CALL_IDS_TEMPLATE = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    "{% if c.id | length != 9 %}"
    "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}"
    "{% endif %}{{ c.id }}{% endfor %}{{ m.tool_call_id or '' }}{{ m.content }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("call_id", "status"), [("9b2f6a0e-52e5-4c3a-8f7d-3f1c5d9e7a10", 400), ("abcdefgh9", 200)]
)
def test_mlx_lm_1375_template_that_checks_call_ids(
    mistral: InProcessServer, call_id: str, status: int
) -> None:
    """Long ids of an earlier turn are refused by the template; its words reach the client."""
    call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *USER_HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "42"},
    ]
    reply = trusting(mistral).post(CHAT_RENDER, chat(messages, chat_template=CALL_IDS_TEMPLATE))
    assert reply.status == status
    if status == 400:
        assert "alphanumeric strings with length 9" in reply.error["message"]


SWITCHES = [
    {"tokenize": True},
    {"add_generation_prompt": False},
    {"continue_final_message": True},
    {"return_dict": True},
    {"truncation": True, "max_length": 2},
    {"bos_token": "EVIL"},
]


@pytest.mark.parametrize("kwargs", SWITCHES, ids=str)
@pytest.mark.parametrize("path", [CHAT_RENDER, TOKENIZE])
def test_vllm_27205_switches_of_the_server_change_nothing(
    qwen3: InProcessServer, mistral: InProcessServer, path: str, kwargs: dict[str, Any]
) -> None:
    """A switch among the template's variables changed what the server does."""
    for server in (qwen3, mistral):
        given = server.ok(path, chat(USER_HI, chat_template_kwargs=kwargs))
        plain = server.ok(path, chat(USER_HI))
        key = "token_ids" if path == CHAT_RENDER else "tokens"
        assert given[key] == plain[key]


def test_vllm_27205_bos_stays_the_tokenizers(mistral: InProcessServer) -> None:
    """The prompt that those requests get."""
    body = chat(USER_HI, chat_template_kwargs={"bos_token": "EVIL"})
    ids = mistral.ok(CHAT_RENDER, body)["token_ids"]
    assert ids == [1, 28792, 16289, 28793, 15359, 733, 28748, 16289, 28793]


@pytest.mark.parametrize(
    "kwargs", [{"chat_template": "{{ 'x' }}"}, {"messages": []}, {"self": 1}, {"tokenizer": 1}], ids=str
)
def test_vllm_27205_names_of_the_servers_own_parameters(
    qwen3: InProcessServer, mistral: InProcessServer, kwargs: dict[str, Any]
) -> None:
    """They never reach the server's call, and the error names no function of it."""
    for server in (qwen3, mistral):
        error = server.post(CHAT_RENDER, chat(USER_HI, chat_template_kwargs=kwargs)).error
        assert (error["code"], error["param"]) == (400, "chat_template_kwargs")
        assert "()" not in error["message"]
        assert "argument" not in error["message"]


NESTED_LOOPS = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    "fields",
    [{"chat_template": NESTED_LOOPS}, {"chat_template_kwargs": {"chat_template": NESTED_LOOPS}}],
    ids=["top level", "variables"],
)
@pytest.mark.parametrize("path", [CHAT_RENDER, TOKENIZE])
def test_megatron_lm_6818_templates_of_requests_are_refused(
    smollm2: InProcessServer, path: str, fields: dict[str, Any]
) -> None:
    """Nested loops in a template sent by a client ran in an async handler."""
    assert smollm2.post(path, chat(USER_HI, **fields)).error["code"] == 400


@pytest.mark.parametrize(
    "source",
    [
        NESTED_LOOPS,
        "{{ 'x' * 10**12 }}",
        "{{ 9**(9**9) }}",
        "{{ 'x'.ljust(10**10) }}",
        "{{ 'x' | center(10**10) }}",
        "{{ '%999999999d' | format(1) }}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{{ range(10**9) | list | length }}",
    ],
)
def test_megatron_lm_6818_allowed_templates_have_limits(smollm2: InProcessServer, source: str) -> None:
    """Where the operator allows them, steps and sizes are limited."""
    began = time.perf_counter()
    error = trusting(smollm2).post(CHAT_RENDER, chat(USER_HI, chat_template=source)).error
    assert error["code"] == 400
    assert time.perf_counter() - began < 10


def test_megatron_lm_6818_a_template_ends_when_its_client_goes(smollm2: InProcessServer) -> None:
    """The checkpoint is met inside the template's loops."""

    class Gone(BaseException):
        """As a cancellation is."""

    def gone() -> None:
        nonlocal met
        met += 1
        if met > 3:
            raise Gone

    met = 0
    with pytest.raises(Gone):
        trusting(smollm2).post(CHAT_RENDER, chat(USER_HI, chat_template=NESTED_LOOPS), gone)
    assert met == 4
