"""No body, however wrong, leads to anything but an answer or an error that is meant for the client."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import never, opened

from trio_render import Model, Policy, RenderError
from trio_render.derender import wire as derender_wire
from trio_render.derender.stream_seal import seal
from trio_render.derender.stream_state import StreamState
from trio_render.derender.stream_text import TextState
from trio_render.render import wire as render_wire
from trio_render.render.prompt_embeds import check_prompt_embeds
from trio_render.workspace import workspace_of

POLICY = Policy(
    served_names=("m",), max_sequences=64, trust_request_chat_template=True, enable_prompt_embeds=True
)

# ------------------------------------------------------------ bodies with everything in them

SAMPLING: dict[str, Any] = {
    "model": "m",
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "repetition_penalty": 1.1,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "n": 2,
    "seed": 1,
    "max_tokens": 9,
    "min_tokens": 1,
    "stop": ["a", "b"],
    "stop_token_ids": [5],
    "include_stop_str_in_output": False,
    "ignore_eos": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "logit_bias": {"5": 1.0},
    "allowed_token_ids": [5, 6],
    "bad_words": ["bad"],
    "logprob_token_ids": [5],
    "use_beam_search": False,
    "length_penalty": 1.0,
    "thinking_token_budget": 5,
    "repetition_detection": {"a": 1},
    "structured_outputs": {"choice": ["a", "b"]},
    "vllm_xargs": {"a": [1, {"b": None}]},
    "stream": False,
    "stream_interval": 1,
    "echo": False,
    "user": "u",
    "truncate_prompt_tokens": 100,
    "truncation_side": "left",
    "return_token_ids": True,
    "return_token_offsets": True,
    "request_id": "r",
    "priority": 1,
    "cache_salt": "salt",
    "kv_transfer_params": {"do_remote_prefill": True},
    "ec_transfer_params": {"a": 1},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1, null]}'}}
CHAT: dict[str, Any] = {
    **SAMPLING,
    "messages": [
        {"role": "system", "content": "s", "name": "n"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "input_text", "text": "you"}]},
        {"role": "assistant", "content": None, "reasoning": "why", "tool_calls": [CALL]},
        {"role": "tool", "content": "5", "tool_call_id": "c1"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "d",
                "parameters": {"type": "object", "properties": {"a": {"type": "array"}}},
                "strict": False,
            },
        }
    ],
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "add_special_tokens": False,
    "chat_template": (
        "{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.tool_calls }}{% endfor %}{{ tools }}{{ a }}"
    ),
    "chat_template_kwargs": {"a": True, "enable_thinking": False},
    "documents": [{"title": "t", "text": "x"}],
    "reasoning_effort": "low",
    "include_reasoning": True,
    "max_completion_tokens": 9,
    "logprobs": True,
    "top_logprobs": 2,
    "prompt_logprobs": 2,
}
COMPLETION: dict[str, Any] = {
    **SAMPLING,
    "prompt": ["hi", "you"],
    "prompt_embeds": None,
    "logprobs": 2,
    "prompt_logprobs": 1,
    "add_special_tokens": True,
    "best_of": 1,
}
PLACE = {
    "logprob": -0.5,
    "token_id": 5,
    "token": "token_id:5",
    "top_logprobs": [{"logprob": -1.0, "token_id": 6}, {"logprob": None, "token": "token_id:7"}],
}
RESPONSE: dict[str, Any] = {
    "request_id": "r",
    "output_mode": "tokens",
    "choices": [
        {
            "index": 0,
            "token_ids": [28120, 905, 2],
            "finish_reason": "stop",
            "stop_reason": None,
            "logprobs": {"content": [PLACE, PLACE]},
            "routed_experts": [[1]],
        }
    ],
    "prompt_token_ids": [5, 6],
    "prompt_logprobs": [None, {"5": {"logprob": -1.0, "rank": 1, "decoded_token": None}}],
    "kv_transfer_params": {"a": 1},
    "ec_transfer_params": {"a": 1},
    "weight_version": "w",
    "metrics": {"a": 1.5},
}
CHUNK = {"request_id": "r", "choices": RESPONSE["choices"], "usage": {"prompt_tokens": 5}}
STATE = seal(StreamState(0, 5, False, 0, 7, TextState(False, b"", b"", 0), "", b"", 0), b"", "chat", "r")
# Rendering refuses most of these together with what an output needs; derendering ignores them.
ASKED = {"structured_outputs": None, "prompt_logprobs": None}

Answer = Callable[[Model, bytes], bytes]


def render_completion(model: Model, body: bytes) -> bytes:
    start = render_wire.completion_start(workspace_of(model, POLICY), never, [body], None)
    for text in start.embeds:
        check_prompt_embeds(workspace_of(model, POLICY), never, (), text)
    return start.done + b"".join(
        render_wire.completion_json(workspace_of(model, POLICY), never, (), plan) for plan in start.left
    )


ENDPOINTS: dict[str, tuple[dict[str, Any], Answer]] = {
    "chat render": (
        CHAT,
        lambda model, body: render_wire.chat_json(workspace_of(model, POLICY), never, [body], None),
    ),
    "completion render": (COMPLETION, render_completion),
    "tokenize text": (
        {"prompt": "hi", "model": "m", "add_special_tokens": True, "return_token_strs": True},
        lambda model, body: render_wire.tokenize_json(workspace_of(model, POLICY), never, [body]),
    ),
    "tokenize chat": (
        {**CHAT, "chat_template": None, "return_token_strs": True},
        lambda model, body: render_wire.tokenize_json(workspace_of(model, POLICY), never, [body]),
    ),
    "detokenize": (
        {"tokens": [5, 6], "model": "m"},
        lambda model, body: derender_wire.detokenize_json(workspace_of(model, POLICY), never, [body]),
    ),
    "chat derender": (
        {
            "generate_response": RESPONSE,
            "model": "m",
            "chat_request": CHAT | ASKED,
            "prompt_token_ids": [5, 6],
            "prompt_tokens": 2,
            "stream": False,
        },
        lambda model, body: derender_wire.chat_json(workspace_of(model, POLICY), never, [body]),
    ),
    "completion derender": (
        {
            "generate_responses": [RESPONSE, RESPONSE],
            "model": "m",
            "completion_request": COMPLETION | ASKED,
            "prompt_token_ids": [[5], [6]],
            "prompt_tokens": [1, 1],
            "stream": False,
        },
        lambda model, body: derender_wire.completion_json(workspace_of(model, POLICY), never, [body]),
    ),
    "chat chunk": (
        {
            "generate_chunk": CHUNK,
            "model": "m",
            "chat_request": CHAT,
            "stream_state": {"a": 1, "v": STATE.v},
            "stream": True,
        },
        lambda model, body: derender_wire.chat_json(workspace_of(model, POLICY), never, [body]),
    ),
    "completion chunk": (
        {"generate_chunk": CHUNK, "model": "m", "completion_request": COMPLETION, "stream": True},
        lambda model, body: derender_wire.completion_json(workspace_of(model, POLICY), never, [body]),
    ),
}

# ------------------------------------------------------------ and what may go wrong in them

JUNK: list[Any] = [
    *(None, True, False, 0, -1, 1, 5, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**30),
    *(0.0, -0.0, 1.5, 5.0, -1e308, 1e-320, 1e17),
    *(
        "",
        "x",
        "5",
        "token_id:5",
        "token_id:99999999",
        "token_id:-1",
        "²",
        "\x00",
        "none",
        "auto",
        "a" * 5000,
    ),
    *([], [None], [0], [-1], [10**30], [1.5], [True], [""], ["x"], [[]], [[0]], [{}], [[[[]]]], [0, "x"]),
    *(
        {},
        {"": None},
        {"a": None},
        {"type": None},
        {"type": "text"},
        {"function": {}},
        {"-1": 0},
        {"5": None},
    ),
    *({"²": 1}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {"a": [1]}}}),
    *({"json": {}}, {"regex": ""}, {"choice": []}, {"json_object": True}, {"prompt_token_ids": [5]}),
    *(
        {"prompt_token_ids": None},
        {"prompt_token_ids": [10**30]},
        {"messages": []},
        {"__pace": 1},
        {"self": 1},
    ),
    *({"content": [{"logprob": 1, "token_id": 5, "top_logprobs": [{"logprob": None}]}]}, {"content": None}),
    *(
        {"role": "user"},
        {"role": "user", "content": [{"type": []}]},
        {"role": "assistant", "tool_calls": [None]},
    ),
    *({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": None}}]},),
    *({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": "\\ud800"}'}}]},),
    *({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[" * 9999}}]},),
    *({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "9" * 5000}}]},),
    {"type": "function", "function": {"name": "f"}},
]

PathTo = tuple[str | int, ...]


def paths(value: Any, where: PathTo = ()) -> Iterator[PathTo]:
    """The place of every value inside, from the outside in."""
    yield where
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*where, key))
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            yield from paths(inner, (*where, n))


def replaced(value: Any, where: PathTo, new: Any) -> Any:
    """A copy with another value in one place, or unchanged where there is no such place any more."""
    if not where:
        return new
    changed = copy.copy(value)
    key = where[0]
    try:
        changed[key] = replaced(value[key], where[1:], new)  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        return value
    return changed


def without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: inner for name, inner in value.items() if name != key}


def ends_well(model: Model, answer: Answer, body: Any) -> None:
    """Fails unless the body is answered with JSON, or refused on purpose and in few words."""
    try:
        written = answer(model, json.dumps(body).encode())
    except RenderError as error:
        written = json.dumps([error.message, error.param], ensure_ascii=False).encode()
        if len(written) > 1000:
            raise AssertionError("the error message is too long") from error
    json.loads(b"[" + written + b"]")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_the_whole_body_is_answered(model_folders: Path, endpoint: str) -> None:
    """Or else the tests below would look at one refusal again and again."""
    body, answer = ENDPOINTS[endpoint]
    model = opened(model_folders / "smollm2")
    assert json.loads(b"[" + answer(model, json.dumps(body).encode()) + b"]")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_one_wrong_value_anywhere(model_folders: Path, endpoint: str) -> None:
    body, answer = ENDPOINTS[endpoint]
    model = opened(model_folders / "smollm2")
    for where in paths(body):
        for junk in JUNK:
            ends_well(model, answer, replaced(body, where, junk))


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_one_wrong_value_beside_defaults(model_folders: Path, endpoint: str) -> None:
    """What is absent may matter as much as what is there."""
    body, answer = ENDPOINTS[endpoint]
    model = opened(model_folders / "smollm2")
    needed = {
        "messages",
        "prompt",
        "generate_response",
        "generate_responses",
        "generate_chunk",
        "tokens",
        "stream",
    }
    required = {key: value for key, value in body.items() if key in needed}
    for key in body:
        for junk in JUNK:
            ends_well(model, answer, {**required, key: junk})
        ends_well(model, answer, without(body, key))


junk_values = st.recursive(
    st.sampled_from(JUNK)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["5", "a", "type", "text", "function", "name", "role"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def several_wrong_values(model: Model, endpoint: str, examples: int) -> None:
    body, answer = ENDPOINTS[endpoint]
    places = list(paths(body))

    @settings(deadline=None, max_examples=examples)
    @given(st.lists(st.tuples(st.sampled_from(places), junk_values), min_size=1, max_size=5))
    def check(changes: list[tuple[PathTo, Any]]) -> None:
        changed = body
        for where, junk in changes:
            changed = replaced(changed, where, junk)
        ends_well(model, answer, changed)

    check()


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_several_wrong_values(model_folders: Path, endpoint: str) -> None:
    several_wrong_values(opened(model_folders / "smollm2"), endpoint, 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "mistral-hf", "qwen3"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_several_wrong_values_at_length(model_folders: Path, endpoint: str, name: str) -> None:
    several_wrong_values(opened(model_folders / name), endpoint, 3000)


@pytest.mark.parametrize("open_", ["[", '{"a":'])
@pytest.mark.parametrize(
    ("endpoint", "place"),
    [
        (
            "chat render",
            '{"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {"a": X}}',
        ),
        ("chat render", '{"messages": [{"role": "user", "content": "hi"}], "kv_transfer_params": {"a": X}}'),
        ("chat render", '{"messages": [{"role": "user", "content": "hi"}], "documents": [{"a": X}]}'),
        (
            "chat render",
            '{"messages": [{"role": "user", "content": "hi"}], "tool_choice": "none",'
            ' "tools": [{"function": {"name": "f", "parameters": {"a": X}}}]}',
        ),
        ("chat render", '{"messages": [{"role": "user", "content": X}]}'),
        ("completion render", '{"prompt": "hi", "vllm_xargs": {"a": X}}'),
        ("completion render", '{"prompt": "hi", "structured_outputs": {"json": {"a": X}}}'),
        ("completion render", '{"prompt": "hi", "kv_transfer_params": {"a": X}}'),
        ("completion render", '{"prompt": X}'),
        (
            "chat derender",
            '{"generate_response": {"request_id": "r", "metrics": {"a": X}, "weight_version": X,'
            ' "choices": [{"index": 0, "token_ids": [5], "routed_experts": X}]}}',
        ),
        (
            "completion derender",
            '{"generate_responses": [{"request_id": "r", "weight_version": X, "choices": []},'
            ' {"request_id": "r", "weight_version": X, "choices": []}]}',
        ),
    ],
)
def test_values_nested_to_any_depth(model_folders: Path, endpoint: str, place: str, open_: str) -> None:
    answer = ENDPOINTS[endpoint][1]
    model = opened(model_folders / "smollm2")
    close = {"[": "]", '{"a":': "}"}[open_]
    for depth in (*range(50, 800, 50), *range(800, 1010), 100_000):
        body = place.replace("X", open_ * depth + "1" + close * depth)
        try:
            answer(model, body.encode())
        except RenderError:
            continue
